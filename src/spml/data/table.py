"""LabelTable: items, classes and the known label of each pair, stored as sparse rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.errors import DataError
from spml.files import encodable

DENSE_LIMIT = 2 * 1024**3  # bytes that .labels may take
SPLITS = ("train", "val", "test")

Labels = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class SparseLabels:
    """int8 labels of (items, classes), as rows of the entries that differ from one fill value.

    Attributes:
        indptr: row i consists of the entries indptr[i] to indptr[i + 1].
        indices: class of each entry, increasing within a row.
        values: label of each entry: 1, 0 or -1.
        fill: label of every entry not listed: 0 (unknown) or -1 (complete tables).
        num_classes: number of columns.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: Labels
    fill: int
    num_classes: int

    @classmethod
    def from_dense(cls, labels: npt.ArrayLike, fill: int | None = None) -> SparseLabels:
        """Convert a dense array; the default fill value is the more frequent one of 0 and -1."""
        dense = np.asarray(labels)
        if dense.ndim != 2:
            raise DataError(
                f"labels must have two axes, items and classes; they have shape {dense.shape}"
            )
        if not (legal := np.isin(dense, (-1, 0, 1))).all():
            row, column = np.argwhere(~legal)[0]
            place = f"{dense[row, column]!s} in row {row}, column {column}"
            raise DataError(
                f"labels hold {place}; only 1 (positive), 0 (unknown) and -1 (negative) are labels"
            )
        dense = dense.astype(np.int8)
        if fill is None:
            fill = -1 if np.count_nonzero(dense == -1) > np.count_nonzero(dense == 0) else 0
        rows, columns = np.nonzero(dense != fill)
        return cls.from_entries(rows, columns, dense[rows, columns], dense.shape, fill)

    @classmethod
    def from_entries(
        cls,
        rows: npt.NDArray[np.integer],
        columns: npt.NDArray[np.integer],
        values: Labels,
        shape: tuple[int, int],
        fill: int,
    ) -> SparseLabels:
        """Build labels from unique entries sorted by row, then by column."""
        indptr = np.zeros(shape[0] + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=shape[0]), out=indptr[1:])
        return cls(indptr, columns.astype(np.int32), values.astype(np.int8), fill, shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Number of items and of classes."""
        return len(self.indptr) - 1, self.num_classes

    def entry_rows(self) -> npt.NDArray[np.int64]:
        """Row of each entry."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def rows(self, index: npt.ArrayLike) -> Labels:
        """Dense labels of the selected rows."""
        selected = self.take(index)
        out = np.full(selected.shape, self.fill, np.int8)
        out[selected.entry_rows(), selected.indices] = selected.values
        return out

    def take(self, index: npt.ArrayLike) -> SparseLabels:
        """Sparse labels of the selected rows."""
        wanted = _row_numbers(index, self.shape[0])
        starts, lengths = self.indptr[wanted], self.indptr[wanted + 1] - self.indptr[wanted]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entry = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths) + np.repeat(starts, lengths)
        return SparseLabels(
            indptr, self.indices[entry], self.values[entry], self.fill, self.num_classes
        )

    def reorder(self, columns: npt.ArrayLike) -> SparseLabels:
        """The same labels with column i moved to columns[i]."""
        moved = np.asarray(columns, np.int32)[self.indices]
        order = np.lexsort((moved, self.entry_rows()))
        return SparseLabels(
            self.indptr, moved[order], self.values[order], self.fill, self.num_classes
        )

    def positives(self, fill: int) -> SparseLabels:
        """Only the ones; every other entry becomes `fill`."""
        keep = self.values == 1
        indptr = np.concatenate([[0], np.cumsum(keep)])[self.indptr]
        return SparseLabels(indptr, self.indices[keep], self.values[keep], fill, self.num_classes)

    def counts(self, value: int) -> npt.NDArray[np.int64]:
        """Number of items with this label, per class."""
        listed = np.bincount(self.indices[self.values == value], minlength=self.num_classes)
        if value != self.fill:
            return listed
        others = np.bincount(self.indices[self.values != value], minlength=self.num_classes)
        return self.shape[0] - others

    def lookup(self, rows: npt.ArrayLike, columns: npt.ArrayLike) -> Labels:
        """Labels of single entries, without a dense table."""
        keys = self.entry_rows() * self.num_classes + self.indices
        wanted = np.asarray(rows, np.int64) * self.num_classes + np.asarray(columns, np.int64)
        out = np.full(len(wanted), self.fill, np.int8)
        if len(keys):
            nearest = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            listed = keys[nearest] == wanted
            out[listed] = self.values[nearest[listed]]
        return out


def _row_numbers(index: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """Convert a mask or row numbers; negative numbers count from the end."""
    selection = np.asarray(index)
    if selection.dtype == bool:
        if selection.shape != (count,):
            raise IndexError(f"a mask of {selection.shape} does not fit {count} rows")
        return np.flatnonzero(selection)
    wanted = selection.astype(np.int64)
    if wanted.size and not (-count <= wanted.min() and wanted.max() < count):
        raise IndexError(f"rows {wanted.min()} to {wanted.max()} asked for, the table has {count}")
    return np.where(wanted < 0, wanted + count, wanted)


@dataclass(frozen=True, eq=False)
class Places:
    """Position of each row in the files it was read from, for messages."""

    files: tuple[tuple[Path, str], ...]  # each with the unit of its positions: (photos.csv, "line")
    numbers: npt.NDArray[np.int64]  # position of each row
    file: npt.NDArray[np.uint8]  # index of each row's file in `files`

    @classmethod
    def of(cls, file: Path, unit: str, numbers: npt.ArrayLike) -> Places:
        """Places of rows that all come from one file."""
        positions = np.asarray(numbers, dtype=np.int64)
        return cls(((file, unit),), positions, np.zeros(len(positions), np.uint8))

    def take(self, rows: npt.NDArray[np.int64]) -> Places:
        """Places of the selected rows."""
        return Places(self.files, self.numbers[rows], self.file[rows])

    def followed_by(self, other: Places) -> Places:
        """Places of two tables, one after the other."""
        numbers = np.concatenate([self.numbers, other.numbers])
        if self.files == other.files:
            return Places(self.files, numbers, np.concatenate([self.file, other.file]))
        file = np.concatenate([self.file, other.file + np.uint8(len(self.files))])
        return Places(self.files + other.files, numbers, file)

    def short(self, row: int) -> str:
        """Unit and number of a row: "line 7"."""
        return f"{self.files[self.file[row]][1]} {self.numbers[row]}"

    def text(self, row: int) -> str:
        """File, unit and number of a row: "photos.csv, line 7"."""
        return f"{self.files[self.file[row]][0]}, {self.short(row)}"


class LabelTable:
    """Items and their labels: 1 known positive, -1 known negative, 0 unknown.

    Attributes:
        items: one path or identifier per row.
        classes: one name per column.
        sparse: the labels; the constructor also accepts a dense int8 array (items, classes).
        x: the items themselves if they are arrays: float features (N, D) or uint8 pictures
            (N, 3, H, W).
        root: folder that relative paths in `items` start from.
        places: position of each row in the file it was read from, for messages.
        feature_names: of the columns of x, if the data name them.
    """

    def __init__(
        self,
        items: Sequence[str],
        classes: Sequence[str],
        labels: SparseLabels | npt.ArrayLike,
        *,
        x: npt.NDArray[np.generic] | None = None,
        root: Path | None = None,
        places: Places | None = None,
        feature_names: Sequence[str] = (),
    ) -> None:
        sparse = labels if isinstance(labels, SparseLabels) else SparseLabels.from_dense(labels)
        if sparse.shape != (len(items), len(classes)):
            raise DataError(
                f"labels are {sparse.shape}, not items by classes {(len(items), len(classes))}"
            )
        if not len(classes):
            raise DataError("the table has no classes; give at least one label")
        if len(set(classes)) < len(classes):
            twice = next(name for name in classes if list(classes).count(name) > 1)
            raise DataError(f"class {twice!r} appears twice; give each class one column")
        for kind, names in (("item", items), ("class", classes)):
            if not encodable("".join(names)):
                wrong = next(name for name in names if not encodable(name))
                raise DataError(f"{kind} {wrong!r} is no text in UTF-8; rename it")
        if x is not None and len(x) != len(items):
            raise DataError(f"x has {len(x)} rows, the table {len(items)}")
        self.items, self.classes, self.sparse = items, list(classes), sparse
        self.x, self.root, self.places = x, root, places
        self.feature_names = list(feature_names)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"LabelTable({len(self):,} items, {len(self.classes):,} classes)"

    @property
    def labels(self) -> Labels:
        """All labels as a dense int8 array; refused above 2 GiB."""
        items, classes = self.sparse.shape
        if items * classes > DENSE_LIMIT:
            size = f"{items * classes / 2**30:.1f} GiB"
            raise DataError(f"{items:,} x {classes:,} labels take {size}; use .rows(index)")
        return self.rows(np.arange(items))

    def rows(self, index: npt.ArrayLike) -> Labels:
        """Dense labels of the selected rows; training reads them batch by batch."""
        return self.sparse.rows(index)

    def known(self, row: int) -> tuple[list[str], list[str]]:
        """Names of an item's positives, and of its known negatives."""
        labels = self.rows([row])[0]
        present, absent = (
            [self.classes[i] for i in np.flatnonzero(labels == value).tolist()] for value in (1, -1)
        )
        return present, absent

    def replaced(self, **changes: Any) -> LabelTable:
        """The same table with other values of some of the constructor's arguments."""
        names = ("items", "classes", "x", "root", "places", "feature_names")
        own = {name: getattr(self, name) for name in names}
        return LabelTable(**{"labels": self.sparse, **own, **changes})

    def take(self, index: npt.ArrayLike) -> LabelTable:
        """Table of the selected rows, in that order."""
        wanted = _row_numbers(index, len(self))
        return self.replaced(
            items=[self.items[i] for i in wanted],
            labels=self.sparse.take(wanted),
            x=None if self.x is None else self.x[wanted],
            places=None if self.places is None else self.places.take(wanted),
        )

    def with_labels(self, labels: SparseLabels | npt.ArrayLike) -> LabelTable:
        """The same items with other labels."""
        return self.replaced(labels=labels)

    def file(self, row: int) -> Path:
        """Path of a row's file."""
        path = Path(self.items[row])
        return path if self.root is None else self.root / path

    def where(self, row: int) -> str:
        """Start of a message about a row: "photos.csv, line 7: ", or "" if unknown."""
        return "" if self.places is None else f"{self.places.text(row)}: "


def concatenate(first: LabelTable, second: LabelTable) -> LabelTable:
    """Append the rows of a table with the same classes and the same fill value."""
    if first.classes != second.classes or first.sparse.fill != second.sparse.fill:
        raise DataError("tables of different classes or kinds of labels cannot be joined")
    a, b = first.sparse, second.sparse
    indptr = np.concatenate([a.indptr, b.indptr[1:] + a.indptr[-1]])
    indices, values = np.concatenate([a.indices, b.indices]), np.concatenate([a.values, b.values])
    sparse = SparseLabels(indptr, indices, values, a.fill, a.num_classes)
    x = None if first.x is None or second.x is None else np.concatenate([first.x, second.x])
    places = None
    if first.places is not None and second.places is not None:
        places = first.places.followed_by(second.places)
    return first.replaced(items=[*first.items, *second.items], labels=sparse, x=x, places=places)
