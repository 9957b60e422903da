"""LabelTable: items, classes and what is known of each pair, kept sparse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spml.data.places import Places
from spml.errors import DataError

DENSE_LIMIT = 2 * 1024**3  # bytes that .labels may take
SPLITS = ("train", "val", "test")

Labels = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class SparseLabels:
    """int8 labels of (items, classes) as rows of the entries that differ from one fill value.

    Attributes:
        indptr: row i holds the entries indptr[i] to indptr[i + 1].
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
    def from_dense(cls, labels: npt.ArrayLike) -> SparseLabels:
        """Keep the entries that are not the commoner of 0 and -1."""
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
        """Labels from entries in order of rows, then columns, none of them twice."""
        indptr = np.zeros(shape[0] + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=shape[0]), out=indptr[1:])
        return cls(indptr, columns.astype(np.int32), values.astype(np.int8), fill, shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Items, classes."""
        return len(self.indptr) - 1, self.num_classes

    def entry_rows(self) -> npt.NDArray[np.int64]:
        """Row of each entry."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def rows(self, index: npt.ArrayLike) -> Labels:
        """Dense labels of the given rows."""
        taken = self.take(index)
        out = np.full(taken.shape, self.fill, np.int8)
        out[taken.entry_rows(), taken.indices] = taken.values
        return out

    def take(self, index: npt.ArrayLike) -> SparseLabels:
        """The given rows, still sparse."""
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
        """The ones alone; every other entry becomes `fill`."""
        keep = self.values == 1
        indptr = np.concatenate([[0], np.cumsum(keep)])[self.indptr]
        return SparseLabels(indptr, self.indices[keep], self.values[keep], fill, self.num_classes)

    def counts(self, value: int) -> npt.NDArray[np.int64]:
        """How many items hold this label, per class."""
        listed = np.bincount(self.indices[self.values == value], minlength=self.num_classes)
        if value != self.fill:
            return listed
        others = np.bincount(self.indices[self.values != value], minlength=self.num_classes)
        return self.shape[0] - others


def _row_numbers(index: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """Row numbers from 0, out of numbers (negative ones count from the end) or a mask."""
    given = np.asarray(index)
    if given.dtype == bool:
        if given.shape != (count,):
            raise IndexError(f"a mask of {given.shape} does not fit {count} rows")
        return np.flatnonzero(given)
    wanted = given.astype(np.int64)
    if wanted.size and not (-count <= wanted.min() and wanted.max() < count):
        raise IndexError(f"rows {wanted.min()} to {wanted.max()} asked for, the table has {count}")
    return np.where(wanted < 0, wanted + count, wanted)


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Items and their labels: 1 known positive, -1 known negative, 0 unknown.

    Attributes:
        items: one path or identifier per row.
        classes: one name per column.
        sparse: the labels; a dense int8 (items, classes) array is accepted in its place.
        x: the items themselves where they are arrays: float features (N, D) or uint8 pictures (N, 3, H, W).
        root: folder that relative paths in `items` start from.
        places: where each row stands in the file it was read from, for messages.
    """

    items: Sequence[str]
    classes: Sequence[str]
    sparse: SparseLabels
    x: npt.NDArray[np.generic] | None = field(default=None, repr=False)
    root: Path | None = None
    places: Places | None = field(default=None, repr=False)

    def __init__(
        self,
        items: Sequence[str],
        classes: Sequence[str],
        labels: SparseLabels | npt.ArrayLike,
        *,
        x: npt.NDArray[np.generic] | None = None,
        root: Path | None = None,
        places: Places | None = None,
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
            raise DataError(f"class {twice!r} stands twice; give each class one column")
        if x is not None and len(x) != len(items):
            raise DataError(f"x has {len(x)} rows, the table {len(items)}")
        given = {
            "items": items,
            "classes": list(classes),
            "sparse": sparse,
            "x": x,
            "root": root,
            "places": places,
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def labels(self) -> Labels:
        """All labels as a dense int8 array; refused above 2 GiB."""
        items, classes = self.sparse.shape
        if items * classes > DENSE_LIMIT:
            raise DataError(
                f"{items:,} x {classes:,} labels take {items * classes / 2**30:.1f} GiB; use .rows(index)"
            )
        return self.rows(np.arange(items))

    def rows(self, index: npt.ArrayLike) -> Labels:
        """Dense labels of the given rows: what training takes, batch by batch."""
        return self.sparse.rows(index)

    def take(self, index: npt.ArrayLike) -> LabelTable:
        """The table of the given rows, in the given order."""
        wanted = _row_numbers(index, len(self))
        x = None if self.x is None else self.x[wanted]
        places = None if self.places is None else self.places.take(wanted)
        items = [self.items[i] for i in wanted]
        return LabelTable(
            items, self.classes, self.sparse.take(wanted), x=x, root=self.root, places=places
        )

    def with_labels(self, labels: SparseLabels | npt.ArrayLike) -> LabelTable:
        """The same items with other labels."""
        return LabelTable(
            self.items, self.classes, labels, x=self.x, root=self.root, places=self.places
        )

    def file(self, row: int) -> Path:
        """The file that a row names."""
        path = Path(self.items[row])
        return path if self.root is None else self.root / path

    def where(self, row: int) -> str:
        """The start of a message about a row: "file, line 7: ", or nothing where that is not known."""
        return "" if self.places is None else f"{self.places.text(row)}: "


def concatenate(first: LabelTable, second: LabelTable) -> LabelTable:
    """The rows of one table followed by those of another of the same classes and kind."""
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
    return LabelTable(
        [*first.items, *second.items], first.classes, sparse, x=x, root=first.root, places=places
    )
