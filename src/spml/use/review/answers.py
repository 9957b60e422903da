"""Answers to a review: read, checked against what is known, and joined to it in a new file of labels."""

from __future__ import annotations

import csv
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spml.atomic import replacing, write_text
from spml.data import LabelTable
from spml.data.names import suggestion
from spml.data.readers.csv_files import cells_of
from spml.errors import DataError, UserError
from spml.model.store import read_info
from spml.runs.run import Run
from spml.use.evaluate import run_data
from spml.use.predict.inputs import Note
from spml.use.review.merge import with_answers

HEADER = ["image", "class", "answer"]
NAMED = (
    "method",
    "backbone",
    "size",
    "epochs",
    "batch-size",
    "lr",
)  # options whose defaults depend on the data
OF_THE_DATA = ("root", "labels", "val", "test", "observe", "classes", "selection", "out")
VALUES = {
    "1": 1,
    "1.0": 1,
    "yes": 1,
    "y": 1,
    "true": 1,
    "-1": -1,
    "-1.0": -1,
    "no": -1,
    "n": -1,
    "false": -1,
}


@dataclass(frozen=True)
class Merged:
    """What became of the answers.

    Attributes:
        path: the new file of labels.
        positives: answers that added a label.
        negatives: answers that added a known negative.
        known: answers that said what was known.
        words: of the command that trains with the file, after `spml train`.
    """

    path: Path
    positives: int
    negatives: int
    known: int
    words: list[str]


def merge(
    run: Path,
    answers: Path,
    out: Path | None = None,
    *,
    root: Path | None = None,
    note: Note | None = None,
) -> Merged:
    """Write a new file of labels: those the run was trained with, and the answers.

    Args:
        run: a finished run.
        answers: CSV with the columns image, class and answer (1, -1, or nothing where there is none).
        out: .csv where the data are picture files, .npz where they are arrays; beside the answers when None.
        root: folder of the data's files; where they were at training when None.
        note: told where the data are no longer those of the run; answers are then joined to what they are now.
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
        if os.path.lexists(path):
            raise UserError(f"{path} is already there; give another --out")
    found = read_answers(answers, table)
    rows, columns, values = (np.array(part, np.int64) for part in zip(*found, strict=True))
    before = np.array(
        [table.rows([row])[0, column] for row, column in zip(rows, columns, strict=True)]
    )
    labels = with_answers(table.sparse, rows, columns, values)
    splits = np.full(len(table), "train", dtype="<U5")
    splits[experiment.val_rows] = "val"
    told = root or config.get("root") or config.get("classes") or config["labels"] != "observed"
    own = (
        None if told else config.get("test")
    )  # a file of its own that tells all by itself stays the file that it is
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
    """Options of `spml train` that a run was trained with, but for those that say what the data are and where."""
    given: list[str] = []
    told = shlex.split(str(config.get("command", "")))[3:]
    while told:
        flag, value = told.pop(0), [] if not told or told[0].startswith("--") else [told.pop(0)]
        given += [] if flag.removeprefix("--") in (*OF_THE_DATA, *NAMED) else [flag, *value]
    named = [(name, config.get(name.replace("-", "_"))) for name in NAMED]
    return [
        word for name, value in named if value is not None for word in (f"--{name}", str(value))
    ] + given


def read_answers(path: Path, table: LabelTable) -> list[tuple[int, int, int]]:
    """Row, column and answer of each line; DataError with its number where one cannot be taken."""
    rows: dict[str, int] = {}
    twice: set[str] = set()
    for row, item in enumerate(table.items):
        if rows.setdefault(item, row) != row:
            twice.add(item)
    columns = {name: i for i, name in enumerate(table.classes)}
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    reader = cells_of(path)
    try:
        header = [cell.strip().lower() for cell in next(filter(any, reader), [])]
        if any(header.count(name) != 1 for name in HEADER):
            found = ",".join(header) or "none"
            raise DataError(
                f"{path}, line {reader.line_num or 1}: the columns are {found}; give {','.join(HEADER)}"
            )
        places = [header.index(name) for name in HEADER]
        start = reader.line_num + 1
        for cells in reader:
            line, start = start, reader.line_num + 1
            where = f"{path}, line {line}: "
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise DataError(
                    f"{where}{len(cells)} cells, the header has {len(header)}; is the line whole?"
                )
            image, name, said = (cells[place] for place in places)
            name, said = name.strip(), said.strip()
            if not said:  # not answered yet
                continue
            if image not in rows:
                raise DataError(
                    f"{where}{image!r} is not in the run's train list; is it the answers of another run?"
                )
            if image in twice:
                raise DataError(
                    f"{where}{image!r} names several items; give each a name of its own"
                )
            if name not in columns:
                raise DataError(f"{where}the run has no class {name!r}{suggestion(name, columns)}")
            if said.lower() not in VALUES:
                raise DataError(f"{where}{said!r} is no answer; write 1 for yes or -1 for no")
            _add(seen, (rows[image], columns[name]), VALUES[said.lower()], line, where, table)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: {error}; check the quotes of this row"
        ) from None
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
    """Take an answer that agrees with earlier ones and with what is known."""
    said = {1: "yes", -1: "no"}
    pair = f"{table.classes[entry[1]]!r} of {table.items[entry[0]]!r}"
    if entry in seen and seen[entry][0] != value:
        earlier, at = seen[entry]
        raise DataError(
            f"{where}{pair} is {said[value]}, but {said[earlier]} in line {at}; keep one of the two"
        )
    known = int(table.rows([entry[0]])[0, entry[1]])
    if known not in (0, value):
        label = "positive" if known == 1 else "negative"
        raise DataError(
            f"{where}{pair} is {said[value]}, but it is a known {label}; mend the label or the answer"
        )
    seen.setdefault(entry, (value, line))


def _write_csv(
    out: Path, table: LabelTable, splits: list[str], test: LabelTable | None
) -> list[str]:
    """image,label,negative,split with paths that hold from the file's folder; gives the classes a reader will find."""
    met: set[str] = set()
    ways: dict[Path, Path] = {}
    with replacing(out) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "negative", "split"])
        for part, names in ((table, splits), (test, ["test"] * (0 if test is None else len(test)))):
            for row, split in enumerate(names):
                assert part is not None
                labels = part.rows([row])[0]
                there, absent = (
                    [part.classes[i] for i in np.flatnonzero(labels == value).tolist()]
                    for value in (1, -1)
                )
                met.update(there, absent)
                writer.writerow(
                    [_place(part, row, out, ways), "|".join(there), "|".join(absent), split]
                )
    return sorted(met)


def _place(table: LabelTable, row: int, out: Path, ways: dict[Path, Path]) -> str:
    """Path of a picture from the folder of the new file, where there is one; `ways` are those to folders met before."""
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
