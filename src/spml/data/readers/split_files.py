"""Validation and test rows from separate files, fitted to the tables of the training file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from spml.data.names import ClassList
from spml.data.readers.builder import OnError, report
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
    """Add one split for each file, in the classes of the training file.

    Args:
        tables: of the training file, `source`.
        files: by split, "val" or "test".
        reader: returns the tables of a file in fixed classes.
        classes: its class list; None takes the classes of its tables.
        on_error: called for each row that is in another file too, which is then left out.
    """
    main = next(iter(tables.values()))
    listed = classes or ClassList({name: name for name in main.classes}, str(source))
    joined = dict(tables)
    for split, path in files.items():
        if split in joined:
            place = joined[split].where(0) or f"{source}: "
            raise DataError(
                f"{place}the rows of {split} are marked here, and --{split} names {path}; "
                "give one of them"
            )
        parts = reader(path, listed)
        if len(parts) > 1 or not set(parts) <= {"train", split}:
            marked = " and ".join(parts)
            raise DataError(
                f"{path}: --{split} takes all its rows as {split}, but they are marked {marked}; "
                "unmark them"
            )
        table = _fitted(main, source, next(iter(parts.values())), path)
        joined[split] = _without_known(joined, split, table, path, on_error)
    return {split: joined[split] for split in SPLITS if split in joined}


def _fitted(main: LabelTable, source: Path, table: LabelTable, path: Path) -> LabelTable:
    """Adapt items, arrays and fill value so that the rows can follow those of the main table."""
    shapes = [None if one.x is None else one.x.shape[1:] for one in (main, table)]
    if shapes[0] != shapes[1]:
        kinds = ["files" if shape is None else f"arrays of {shape}" for shape in shapes]
        raise DataError(
            f"{path}: its items are {kinds[1]}, those of {source} are {kinds[0]}; "
            "give items of one kind"
        )
    if list(main.feature_names) != list(table.feature_names):
        raise DataError(
            f"{path}: its features are not those of {source}, in that order; name the columns alike"
        )
    sparse = table.sparse
    if sparse.fill != main.sparse.fill:  # arrays with many known negatives have the other fill
        sparse = SparseLabels.from_dense(table.labels, main.sparse.fill)
    items = list(table.items)
    if table.x is not None and items == [f"{i}" for i in range(len(items))]:
        items = [f"{path.name}:{item}" for item in items]  # rows without names
    elif table.root is not None and main.root is not None and table.root != main.root:
        here, way = f"{_normal(main.root)}{os.sep}", _way(main.root, table.root)
        items = [os.path.normpath(way / item).removeprefix(here) for item in items]
    return table.replaced(items=items, labels=sparse, root=main.root)


def _way(start: Path, target: Path) -> Path:
    """Return the relative path of a folder; it stays valid if both folders are moved together."""
    try:
        return Path(os.path.relpath(target.resolve(), start.resolve()))  # ".." as the system does
    except ValueError:  # another drive
        return target.absolute()


def _identities(table: LabelTable) -> Sequence[str]:
    """Return what identifies each item: the absolute path of a file, or the name of a row."""
    if table.x is not None or table.root is None:
        return table.items
    start = table.root.absolute()
    return [_normal(start / item) for item in table.items]


def _normal(path: Path) -> str:
    return os.path.normpath(path.absolute())


def _without_known(
    tables: Tables, split: str, table: LabelTable, path: Path, on_error: OnError | None
) -> LabelTable:
    """Return the rows whose item is in no other table; report the others."""
    rows = {item: row for row, item in enumerate(_identities(table))}
    repeated = np.zeros(len(table), bool)
    for other, earlier in tables.items():
        for row, item in enumerate(_identities(earlier)):
            at = rows.get(item)
            if at is not None and not repeated[at]:
                repeated[at] = True
                first = (earlier.where(row) or f"row {row}").removesuffix(": ")
                problem = f"{table.items[at]!r} is in {split}, but in {other} too ({first})"
                place = table.where(at) or f"{path}: "
                report(DataError(f"{place}{problem}; keep it in one file"), on_error)
    if repeated.all():
        raise DataError(f"{path}: every item is in another file too; give {split} rows of its own")
    return table.take(~repeated) if repeated.any() else table
