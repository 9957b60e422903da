"""Answers to a review: read, checked against the known labels, and merged into a new label file."""

from __future__ import annotations

import csv
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data import LabelTable, SparseLabels
from spml.data.names import suggestion
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
    labels = with_answers(table.sparse, rows, columns, values)
    splits = np.full(len(table), "train", dtype="<U5")
    splits[experiment.val_rows] = "val"
    # a test file that needs no other option is named again; else its items are copied
    needs_options = root or config.get("root") or config.get("classes")
    copied = needs_options or config["labels"] != "observed"
    own = None if copied else config.get("test")
    test = None if own else experiment.test
    words = [str(out)]
    if table.x is None:
        if _write_csv(out, table.with_labels(labels), splits.tolist(), test) != list(table.classes):
            write_text(names, "".join(f"{name}\n" for name in table.classes))
            words += ["--classes", str(names)]
    else:
        _write_arrays(out, table.with_labels(labels), splits, test)
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
    rows: dict[str, int] = {}
    twice: set[str] = set()
    for row, item in enumerate(table.items):
        if rows.setdefault(item, row) != row:
            twice.add(item)
    columns = {name: i for i, name in enumerate(table.classes)}
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    lines = records(Builder(path, Reading(), path.parent))
    line, cells = next(lines, (1, []))
    header = [cell.strip().lower() for cell in cells]
    if any(header.count(name) != 1 for name in HEADER):
        present = ",".join(header) or "none"
        raise DataError(f"{path}, line {line}: the columns are {present}; give {','.join(HEADER)}")
    places = [header.index(name) for name in HEADER]
    for line, cells in lines:
        where = f"{path}, line {line}: "
        image, name, answer = (cells[place] for place in places)
        name, answer = name.strip(), answer.strip()
        if not answer:  # not answered yet
            continue
        if image not in rows:
            raise DataError(
                f"{where}{image!r} is not in the run's train list; "
                "is it the answers of another run?"
            )
        if image in twice:
            raise DataError(f"{where}{image!r} names several items; give each a name of its own")
        if name not in columns:
            raise DataError(f"{where}the run has no class {name!r}{suggestion(name, columns)}")
        if answer.lower() not in VALUES:
            raise DataError(f"{where}{answer!r} is no answer; write 1 for yes or -1 for no")
        _add(seen, (rows[image], columns[name]), VALUES[answer.lower()], line, where, table)
    if not seen:
        raise DataError(f"{path}: no answers; nothing was written")
    return [(row, column, value) for (row, column), (value, _) in seen.items()]


def _add(
    seen: dict[tuple[int, int], tuple[int, int]],
    entry: tuple[int, int],
    value: int,
    line: int,
    where: str,
    table: LabelTable,
) -> None:
    """Add an answer; raise DataError if it contradicts an earlier one or a known label."""
    text = {1: "yes", -1: "no"}
    pair = f"{table.classes[entry[1]]!r} of {table.items[entry[0]]!r}"
    if entry in seen and seen[entry][0] != value:
        earlier, at = seen[entry]
        raise DataError(
            f"{where}{pair} is {text[value]}, but {text[earlier]} in line {at}; keep one of the two"
        )
    known = int(table.rows([entry[0]])[0, entry[1]])
    if known not in (0, value):
        label = "positive" if known == 1 else "negative"
        raise DataError(
            f"{where}{pair} is {text[value]}, but it is a known {label}; "
            "correct the label or the answer"
        )
    seen.setdefault(entry, (value, line))


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


def _write_csv(
    out: Path, table: LabelTable, splits: list[str], test: LabelTable | None
) -> list[str]:
    """Write image,label,negative,split with paths relative to the file; return its classes."""
    met: set[str] = set()
    ways: dict[Path, Path] = {}
    with replacing(out) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "negative", "split"])
        for part, names in ((table, splits), (test, ["test"] * (0 if test is None else len(test)))):
            for row, split in enumerate(names):
                assert part is not None
                there, absent = part.known(row)
                met.update(there, absent)
                writer.writerow(
                    [_place(part, row, out, ways), "|".join(there), "|".join(absent), split]
                )
    return sorted(met)


def _place(table: LabelTable, row: int, out: Path, ways: dict[Path, Path]) -> str:
    """Path of a picture, relative to the new file if possible; `ways` caches paths of folders."""
    path = table.file(row).absolute()
    if path.parent not in ways:
        try:  # as the system follows ".." out of a link
            ways[path.parent] = Path(os.path.relpath(path.parent.resolve(), out.parent.resolve()))
        except ValueError:  # another drive
            ways[path.parent] = path.parent
    return (ways[path.parent] / path.name).as_posix()


def _write_arrays(out: Path, table: LabelTable, splits: Any, test: LabelTable | None) -> None:
    parts = [table] if test is None else [table, test]
    items = [item for part in parts for item in part.items]
    with replacing(out) as beside, beside.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            x=np.concatenate([part.x for part in parts if part.x is not None]),
            labels=np.concatenate([part.labels for part in parts]),
            classes=np.array(list(table.classes)),
            split=np.concatenate([splits, np.full(sum(map(len, parts)) - len(splits), "test")]),
            items=np.array(items),
        )
