"""`read`: the label tables of a named data set or of a user's files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from spml.data.benchmarks import BENCHMARKS
from spml.data.names import ClassList, class_list, suggestion
from spml.data.readers.arrays import read_arrays
from spml.data.readers.builder import FILL, Kind, OnError, Reading, report
from spml.data.readers.columns import Columns
from spml.data.readers.digits import SETTINGS, read_digits
from spml.data.readers.folders import read_folder
from spml.data.readers.hub import is_hub_folder, read_hub_folder
from spml.data.readers.parquet import SUFFIXES
from spml.data.readers.tabular import read_table
from spml.data.table import SPLITS, LabelTable, SparseLabels
from spml.errors import DataError, UserError

NAMES = (*SETTINGS, *BENCHMARKS)
TABLES = (".csv", ".tsv", ".txt", *SUFFIXES)
WITH_ARRAYS = (".npz", ".npy")

Tables = dict[str, LabelTable]


def read(
    source: str | Path,
    root: str | Path | None = None,
    *,
    labels: Kind | None = None,
    classes: str | Path | Sequence[str] | ClassList | None = None,
    val: str | Path | None = None,
    test: str | Path | None = None,
    on_error: OnError | None = None,
    columns: Columns | None = None,
) -> Tables:
    """Read label tables by split: "train", and "val" and "test" if the data have them.

    Args:
        source: name of a data set, or a path.
        root: folder of a benchmark's files, or of the images in a user's table (default: the
            folder of the table).
        labels: "complete" reads an absent label as negative, "observed" as unknown; default: see
            `default_labels`.
        classes: class names in order, also as text joined by commas, or a file with one a line;
            for users' files.
        val: file of the validation rows, in the classes of the source; for users' files.
        test: file of the test rows.
        on_error: called for each invalid record of a user's file, which is then left out. If None,
            the first one is raised.
        columns: names of the columns of a user's table; default: `image` and `label`.
    """
    kind = labels or default_labels(source)
    if kind not in FILL:
        raise UserError(f"labels={kind!r}; write 'observed' or 'complete'")
    folder = None if root is None else Path(root)
    others = {
        split: Path(file) for split, file in (("val", val), ("test", test)) if file is not None
    }
    if is_named(source):
        if classes is not None:
            raise UserError(f"{source} has its own classes; leave out the class list")
        if others:
            raise UserError(f"{source} has its own splits; leave out --val and --test")
        if columns is not None and columns.changed():
            raise UserError(f"{source} is not a file of yours; leave out the names of columns")
        return _named(str(source), folder, kind)

    reading = Reading(kind, class_list(classes), on_error, columns or Columns())
    tables = _from_path(Path(source), folder, reading)
    return _add_files(tables, others, Path(source), folder, reading) if others else tables


def version(source: str | Path, root: str | Path | None = None) -> str:
    """Name the version of a data set if several circulate; empty for other data."""
    if root is None or not is_named(source) or source not in BENCHMARKS:
        return ""
    return BENCHMARKS[str(source)].version(Path(root))


def is_named(source: str | Path) -> bool:
    """Whether the source is a data set known by name."""
    return isinstance(source, str) and source in NAMES


def default_labels(source: str | Path) -> Kind:
    """Return the default kind: named data sets have complete labels, users' files observed ones."""
    return "complete" if is_named(source) else "observed"


def _named(name: str, root: Path | None, kind: Kind) -> Tables:
    if name in BENCHMARKS:
        if root is None:
            raise DataError(f"{name} needs the folder of its files; give --root DIR")
        return BENCHMARKS[name].read(root, kind)
    tables = read_digits(SETTINGS[name])
    if kind == "observed":
        return {
            split: table.with_labels(table.sparse.positives(0)) for split, table in tables.items()
        }
    return tables


def _from_path(path: Path, root: Path | None, reading: Reading) -> Tables:
    if not path.exists():
        problem = f"no such file, and no data set of that name ({', '.join(NAMES)})"
        raise DataError(f"{path}: {problem}{suggestion(str(path), NAMES) or '; check the path'}")
    suffix = path.suffix.lower()
    if suffix in TABLES:
        return read_table(path, root, reading)
    if reading.columns.changed():
        known = ", ".join(TABLES)
        raise UserError(
            f"{path}: --image-column, --label-column, --label-separator and --features describe "
            f"a table ({known}); leave them out"
        )
    if is_hub_folder(path):
        return read_hub_folder(path, root, reading)
    if suffix not in WITH_ARRAYS and not path.is_dir():
        known = ", ".join((*TABLES, *WITH_ARRAYS))
        raise DataError(
            f"{path}: files of kind {suffix!r} are not read; "
            f"give a folder of classes or one of {known}"
        )
    if root is not None:
        raise UserError(f"{path} holds its items itself; leave out the root {root}")
    holder = read_arrays if suffix in WITH_ARRAYS else read_folder
    return holder(path, reading)


def _add_files(
    tables: Tables, files: dict[str, Path], source: Path, root: Path | None, reading: Reading
) -> Tables:
    """Add one split for each file, in the classes of the training file, without its items."""
    main = next(iter(tables.values()))
    listed = reading.classes or ClassList({name: name for name in main.classes}, str(source))
    joined = dict(tables)
    for split, path in files.items():
        if split in joined:
            place = joined[split].where(0) or f"{source}: "
            raise DataError(
                f"{place}the rows of {split} are marked here, and --{split} names {path}; "
                "give one of them"
            )
        parts = _from_path(path, root, replace(reading, classes=listed))
        if len(parts) > 1 or not set(parts) <= {"train", split}:
            marked = " and ".join(parts)
            raise DataError(
                f"{path}: --{split} takes all its rows as {split}, but they are marked {marked}; "
                "unmark them"
            )
        table = _fitted(main, source, next(iter(parts.values())), path)
        joined[split] = _without_known(joined, split, table, path, reading.on_error)
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
        # A relative way stays valid if both folders are moved together.
        way = Path(os.path.relpath(table.root.resolve(), main.root.resolve()))
        items = [os.path.normpath(way / item) for item in items]
    return table.replaced(items=items, labels=sparse, root=main.root)


def _identities(table: LabelTable) -> Sequence[str]:
    """Return what identifies each item: the absolute path of a file, or the name of a row."""
    if table.x is not None or table.root is None:
        return table.items
    start = table.root.absolute()
    return [os.path.normpath(start / item) for item in table.items]


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
