"""Validation and test rows from files of their own, fitted to the tables of the training file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from spml.data.names import ClassList
from spml.data.readers.builder import OnError, tell
from spml.data.table import SPLITS, LabelTable, SparseLabels
from spml.errors import DataError

Tables = dict[str, LabelTable]


def add_files(
    tables: Tables,
    files: dict[str, Path],
    reader: Callable[[Path, ClassList], Tables],
    *,
    source: Path,
    classes: ClassList | None = None,
    on_error: OnError | None = None,
) -> Tables:
    """The tables with a split more for each file, in the classes of the first.

    Args:
        tables: of the training file.
        files: by split, "val" or "test".
        reader: gives the tables of a file whose classes are fixed.
        source: the training file.
        classes: its class list; its own classes when None.
        on_error: told of each row that stands in another file too, which is then left out; else the first is raised.
    """
    main = next(iter(tables.values()))
    listed = classes or ClassList({name: name for name in main.classes}, str(source))
    joined = dict(tables)
    for split, path in files.items():
        if split in joined:
            there = joined[split].where(0) or f"{source}: "
            raise DataError(
                f"{there}the rows of {split} are marked here, and --{split} names {path}; give one of them"
            )
        found = reader(path, listed)
        if len(found) > 1 or not set(found) <= {"train", split}:
            marked = " and ".join(found)
            raise DataError(
                f"{path}: --{split} takes all its rows as {split}, but they are marked {marked}; unmark them"
            )
        table = _fitted(main, source, next(iter(found.values())), path)
        joined[split] = _without_known(joined, split, table, path, on_error)
    return {split: joined[split] for split in SPLITS if split in joined}


def _fitted(main: LabelTable, source: Path, table: LabelTable, path: Path) -> LabelTable:
    """The table with items, arrays and labels such that its rows can stand after those of the main table."""
    shapes = [None if one.x is None else one.x.shape[1:] for one in (main, table)]
    if shapes[0] != shapes[1]:
        told = ["files" if shape is None else f"arrays of {shape}" for shape in shapes]
        raise DataError(
            f"{path}: its items are {told[1]}, those of {source} are {told[0]}; give items of one kind"
        )
    sparse = table.sparse
    if (
        sparse.fill != main.sparse.fill
    ):  # arrays of many known negatives are kept the other way round
        labels = table.labels
        rows, columns = np.nonzero(labels != main.sparse.fill)
        sparse = SparseLabels.from_entries(
            rows, columns, labels[rows, columns], sparse.shape, main.sparse.fill
        )
    items = list(table.items)
    if table.x is not None and items == [f"{i}" for i in range(len(items))]:
        items = [f"{path.name}:{item}" for item in items]  # rows without names
    elif table.root is not None and main.root is not None and table.root != main.root:
        here, way = f"{_normal(main.root)}{os.sep}", _way(main.root, table.root)
        items = [os.path.normpath(way / item).removeprefix(here) for item in items]
    return LabelTable(items, table.classes, sparse, x=table.x, root=main.root, places=table.places)


def _way(here: Path, there: Path) -> Path:
    """From one folder to another, which stays the same where both are moved together."""
    try:
        return Path(os.path.relpath(there.resolve(), here.resolve()))  # as the system follows ".."
    except ValueError:  # another drive
        return there.absolute()


def _located(table: LabelTable) -> Sequence[str]:
    """What an item is known by: the absolute path of a file, the name of a row."""
    if table.x is not None or table.root is None:
        return table.items
    start = table.root.absolute()
    return [_normal(start / item) for item in table.items]


def _normal(path: Path) -> str:
    return os.path.normpath(path.absolute())


def _without_known(
    tables: Tables, split: str, table: LabelTable, path: Path, on_error: OnError | None
) -> LabelTable:
    """The rows whose item is in no other table."""
    rows = {item: row for row, item in enumerate(_located(table))}
    again = np.zeros(len(table), bool)
    for other, earlier in tables.items():
        for row, item in enumerate(_located(earlier)):
            at = rows.get(item)
            if at is not None and not again[at]:
                again[at] = True
                first = (earlier.where(row) or f"row {row}").removesuffix(": ")
                text = f"{table.items[at]!r} is in {split}, but in {other} too ({first}); keep it in one file"
                tell(DataError(f"{table.where(at) or f'{path}: '}{text}"), on_error)
    if again.all():
        raise DataError(f"{path}: every item is in another file too; give {split} rows of its own")
    return table.take(~again) if again.any() else table
