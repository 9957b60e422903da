"""Answers to a review: read, checked against the known labels, and merged into a new label file."""

from __future__ import annotations

import csv
import os
import shlex
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data import LabelTable, SparseLabels
from spml.data.names import suggestion, text_of
from spml.data.readers.builder import Builder, Reading
from spml.data.readers.tabular import records
from spml.errors import DataError, UserError
from spml.files import refuse_existing, replacing, write_text
from spml.model.store import read_info
from spml.runs.names import RACE_ENTRY
from spml.runs.run import Run
from spml.runs.settings import AUTO, REMOVED_FLAGS
from spml.use.evaluate import run_data
from spml.use.predict.inputs import Note

HEADER = ["image", "class", "answer"]
# options whose defaults depend on the data
NAMED = ("method", "backbone", "size", "epochs", "batch-size", "lr")
OF_THE_DATA = ("root", "labels", "val", "test", "observe", "classes", "selection", "out")
VALUES = dict.fromkeys(("1", "1.0", "yes", "y", "true"), 1)
VALUES |= dict.fromkeys(("-1", "-1.0", "no", "n", "false"), -1)

Parts = list[tuple[LabelTable, Sequence[str]]]  # tables with the split of each row


@dataclass(frozen=True)
class Merged:
    """The outcome of a merge: the new label file, and numbers of answers."""

    path: Path
    positives: int  # answers that added a positive
    negatives: int  # answers that added a known negative
    known: int  # answers that repeat a known label
    words: list[str]  # arguments of the `spml train` command that trains with the file


def merge(
    run: Path,
    answers: Path,
    out: Path | None = None,
    *,
    root: Path | None = None,
    note: Note | None = None,
) -> Merged:
    """Write a new label file with the run's labels and the answers.

    The answers are a CSV file with the columns image, class and answer (1, -1, or empty if
    unanswered). `out` is .csv for picture files, .npz for arrays; default: beside the answers. If
    the data have changed, the answers are merged into the current labels, with a `note`.
    """
    stored = Run(run)
    config = stored.config
    stored.require_result()
    experiment = run_data(config, read_info(run).classes, root, note)
    table = experiment.observed
    suffix = ".csv" if table.x is None else ".npz"
    out = answers.with_name(f"labels{suffix}") if out is None else out
    if out.suffix.lower() != suffix:
        kind = "picture files" if table.x is None else "arrays"
        raise UserError(
            f"{out}: {experiment.name} holds {kind}, whose labels are written as {suffix}"
        )
    names = out.with_name(f"{out.stem}.classes.txt")
    for path in (out, names):
        refuse_existing(path, "give another --out")
    entries = read_answers(answers, table)
    rows, columns, values = (np.array(part, np.int64) for part in zip(*entries, strict=True))
    before = table.sparse.lookup(rows, columns)
    splits = np.full(len(table), "train", dtype="<U5")
    splits[experiment.val_rows] = "val"
    merged = table.with_labels(with_answers(table.sparse, rows, columns, values))
    parts: Parts = [(merged, splits.tolist())]
    # a test file that needs no other option is named again; else its items are copied
    needs_options = root or config.get("root") or config.get("classes")
    copied = needs_options or config["labels"] != "observed"
    own = None if copied else config.get("test")
    if experiment.test is not None and not own:
        parts.append((experiment.test, ["test"] * len(experiment.test)))
    words = [str(out)]
    if table.x is not None:
        _write_arrays(out, parts)
    elif _write_csv(out, parts) != list(table.classes):
        write_text(names, "".join(f"{name}\n" for name in table.classes))
        words += ["--classes", str(names)]
    words += ["--test", str(own)] if own else []
    words += training_words(config)
    new = before == 0
    added, denied = (int((new & (values == value)).sum()) for value in (1, -1))
    return Merged(out, added, denied, int((~new).sum()), words)


def training_words(config: dict[str, Any]) -> list[str]:
    """Options of `spml train` that a run was trained with, except those that describe its data."""
    others: list[str] = []
    words = shlex.split(str(config.get("command", "")))[3:]
    while words:
        flag = words.pop(0)
        values = [] if not words or words[0].startswith("--") else [words.pop(0)]
        ours = flag.removeprefix("--") in (*OF_THE_DATA, *NAMED)
        if not ours and flag not in REMOVED_FLAGS:
            others += [flag, *values]
    named: list[str] = []
    method = AUTO if RACE_ENTRY in config else config.get("method")  # new labels, a new race
    for name in NAMED:
        value = method if name == "method" else config.get(name.replace("-", "_"))
        if value is not None:
            named += [f"--{name}", str(value)]
    return named + others


def read_answers(path: Path, table: LabelTable) -> list[tuple[int, int, int]]:
    """Read row, column and answer of each line; raise DataError naming an invalid line."""
    rows = {item: row for row, item in enumerate(table.items)}
    counts = Counter(table.items)
    columns = {name: i for i, name in enumerate(table.classes)}
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    text = {1: "yes", -1: "no"}
    for line, image_cell, name_cell, answer in _answered(path):
        image, name = _named(image_cell, rows), _named(name_cell, columns)
        where = f"{path}, line {line}: "
        if image not in rows:
            raise DataError(
                f"{where}{image!r} is not in the run's train list; "
                "are these the answers of another run?"
            )
        if counts[image] > 1:
            raise DataError(f"{where}{image!r} names several items; give each a name of its own")
        if name not in columns:
            raise DataError(f"{where}the run has no class {name!r}{suggestion(name, columns)}")
        if answer.lower() not in VALUES:
            raise DataError(f"{where}{answer!r} is no answer; write 1 for yes or -1 for no")
        row, column, value = rows[image], columns[name], VALUES[answer.lower()]
        this = f"{where}{name!r} of {image!r} is {text[value]}, but"
        earlier, at = seen.setdefault((row, column), (value, line))
        if earlier != value:
            raise DataError(f"{this} {text[earlier]} in line {at}; keep one of the two")
        known = int(table.rows([row])[0, column])
        if known not in (0, value):
            label = "positive" if known == 1 else "negative"
            raise DataError(f"{this} it is a known {label}; correct the label or the answer")
    if not seen:
        raise DataError(f"{path}: no answers; nothing was written")
    return [(row, column, value) for (row, column), (value, _) in seen.items()]


def _named(cell: str, known: Container[str]) -> str:
    """Return the name in a cell, with or without an apostrophe against spreadsheets."""
    return text if (text := text_of(cell)) in known else cell


def _answered(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Line number, image, class and answer of each line with an answer."""
    lines = records(Builder(path, Reading(), path.parent))
    line, cells = next(lines, (1, []))
    header = [cell.strip().lower() for cell in cells]
    if any(header.count(name) != 1 for name in HEADER):
        present = ",".join(header) or "none"
        raise DataError(f"{path}, line {line}: the columns are {present}; give {','.join(HEADER)}")
    places = [header.index(name) for name in HEADER]
    for line, cells in lines:
        image, name, answer = (cells[place] for place in places)
        if answer.strip():
            yield line, image, name.strip(), answer.strip()


def with_answers(
    labels: SparseLabels, rows: npt.ArrayLike, columns: npt.ArrayLike, values: npt.ArrayLike
) -> SparseLabels:
    """Labels with the answered entries replaced; each pair of row and column occurs once."""
    row = np.concatenate([labels.entry_rows(), np.asarray(rows, np.int64)])
    column = np.concatenate([labels.indices, np.asarray(columns, np.int64)])
    value = np.concatenate([labels.values, np.asarray(values, np.int8)])
    order = np.lexsort((column, row))  # stable: an answer follows the label it replaces
    keys = row[order] * labels.num_classes + column[order]
    order = order[np.append(np.diff(keys) != 0, True)[: len(order)]]
    return SparseLabels.from_entries(
        row[order], column[order], value[order], labels.shape, labels.fill
    )


def _write_csv(out: Path, parts: Parts) -> list[str]:
    """Write image,label,negative,split with paths relative to the file; return its classes."""
    met: set[str] = set()
    base = out.parent.resolve()

    @cache
    def way(folder: Path) -> Path:
        # resolved, because the system follows ".." out of a link
        return Path(os.path.relpath(folder.resolve(), base))

    with replacing(out) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "negative", "split"])
        for table, splits in parts:
            for row, split in enumerate(splits):
                there, absent = table.known(row)
                met.update(there, absent)
                path = table.file(row).absolute()
                place = (way(path.parent) / path.name).as_posix()
                writer.writerow([place, "|".join(there), "|".join(absent), split])
    return sorted(met)


def _write_arrays(out: Path, parts: Parts) -> None:
    tables = [table for table, _ in parts]
    with replacing(out) as beside, beside.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            x=np.concatenate([table.x for table in tables if table.x is not None]),
            labels=np.concatenate([table.labels for table in tables]),
            classes=np.array(list(tables[0].classes)),
            split=np.array([split for _, splits in parts for split in splits], "<U5"),
            items=np.array([item for table in tables for item in table.items]),
        )
