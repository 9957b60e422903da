"""`read`: the label tables of a named data set or of a user's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spml.data.benchmarks import BENCHMARKS
from spml.data.names import ClassList, class_list, suggestion
from spml.data.readers.arrays import read_arrays
from spml.data.readers.builder import FILL, Kind, OnError, Reading
from spml.data.readers.columns import Columns
from spml.data.readers.digits import SETTINGS, read_digits
from spml.data.readers.folders import read_folder
from spml.data.readers.hub import is_hub_folder, read_hub_folder
from spml.data.readers.parquet import read_parquet
from spml.data.readers.split_files import add_files
from spml.data.readers.tabular import read_csv
from spml.data.table import LabelTable
from spml.errors import DataError, UserError

NAMES = (*SETTINGS, *BENCHMARKS)
WITH_PATHS = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".txt": read_csv,
    ".parquet": read_parquet,
    ".pq": read_parquet,
}
WITH_ARRAYS = (".npz", ".npy")


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
) -> dict[str, LabelTable]:
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
            raise UserError(f"{source} is no table of yours; leave out the names of columns")
        return _named(str(source), folder, kind)

    def from_path(path: Path, listed: ClassList | None) -> dict[str, LabelTable]:
        return _from_path(path, folder, Reading(kind, listed, on_error, columns or Columns()))

    listed = class_list(classes)
    tables = from_path(Path(source), listed)
    if not others:
        return tables
    return add_files(
        tables, others, from_path, source=Path(source), classes=listed, on_error=on_error
    )


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


def _named(name: str, root: Path | None, kind: Kind) -> dict[str, LabelTable]:
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


def _from_path(path: Path, root: Path | None, reading: Reading) -> dict[str, LabelTable]:
    if not path.exists():
        problem = f"no such file, and no data set of that name ({', '.join(NAMES)})"
        raise DataError(f"{path}: {problem}{suggestion(str(path), NAMES) or '; check the path'}")
    suffix = path.suffix.lower()
    reader = WITH_PATHS.get(suffix) or (read_hub_folder if is_hub_folder(path) else None)
    if suffix not in WITH_PATHS and reading.columns.changed():
        known = ", ".join(WITH_PATHS)
        raise UserError(
            f"{path}: --image-column, --label-column, --label-separator and --features describe "
            f"a table ({known}); leave them out"
        )
    if reader is not None:
        return reader(path, root, reading)
    if suffix not in WITH_ARRAYS and not path.is_dir():
        known = ", ".join((*WITH_PATHS, *WITH_ARRAYS))
        raise DataError(
            f"{path}: files of kind {suffix!r} are not read; "
            f"give a folder of classes or one of {known}"
        )
    if root is not None:
        raise UserError(f"{path} holds its items itself; leave out the root {root}")
    holder = read_arrays if suffix in WITH_ARRAYS else read_folder
    return holder(path, reading)
