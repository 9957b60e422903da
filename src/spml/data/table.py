"""LabelTable: items, classes and what is known of each pair, kept sparse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spml.errors import DataError

DENSE_LIMIT = 2 * 1024**3  # bytes that .labels may take

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
            raise DataError(f"labels must have two axes, items and classes; they have shape {dense.shape}")
        if not np.isin(dense, (-1, 0, 1)).all():
            wrong = dense[~np.isin(dense, (-1, 0, 1))].flat[0]
            raise DataError(f"labels hold {wrong!s}; only 1 (positive), 0 (unknown) and -1 (negative) are labels")
        dense = dense.astype(np.int8)
        fill = -1 if (dense == -1).sum() > (dense == 0).sum() else 0
        rows, columns = np.nonzero(dense != fill)
        indptr = np.zeros(len(dense) + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(dense)), out=indptr[1:])
        return cls(indptr, columns.astype(np.int32), dense[rows, columns], fill, dense.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Items, classes."""
        return len(self.indptr) - 1, self.num_classes

    def rows(self, index: npt.ArrayLike) -> Labels:
        """Dense labels of the given rows."""
        wanted = np.asarray(index, dtype=np.int64)
        out = np.full((len(wanted), self.num_classes), self.fill, np.int8)
        starts, lengths = self.indptr[wanted], self.indptr[wanted + 1] - self.indptr[wanted]
        row = np.repeat(np.arange(len(wanted)), lengths)
        entry = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + np.repeat(starts, lengths)
        out[row, self.indices[entry]] = self.values[entry]
        return out

    def take(self, index: npt.ArrayLike) -> SparseLabels:
        """The given rows, still sparse."""
        wanted = np.asarray(index, dtype=np.int64)
        starts, lengths = self.indptr[wanted], self.indptr[wanted + 1] - self.indptr[wanted]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entry = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths) + np.repeat(starts, lengths)
        return SparseLabels(indptr, self.indices[entry], self.values[entry], self.fill, self.num_classes)

    def counts(self, value: int) -> npt.NDArray[np.int64]:
        """How many items hold this label, per class."""
        listed = np.bincount(self.indices[self.values == value], minlength=self.num_classes)
        if value != self.fill:
            return listed
        others = np.bincount(self.indices[self.values != value], minlength=self.num_classes)
        return self.shape[0] - others


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Items and their labels: 1 known positive, -1 known negative, 0 unknown.

    Attributes:
        items: one path or identifier per row.
        classes: one name per column.
        sparse: the labels; a dense int8 (items, classes) array is accepted in its place.
        x: the items themselves where they are arrays: float features (N, D) or uint8 pictures (N, 3, H, W).
        root: folder that relative paths in `items` start from.
    """

    items: Sequence[str]
    classes: Sequence[str]
    sparse: SparseLabels
    x: npt.NDArray[np.generic] | None = field(default=None, repr=False)
    root: Path | None = None

    def __init__(
        self,
        items: Sequence[str],
        classes: Sequence[str],
        labels: SparseLabels | npt.ArrayLike,
        *,
        x: npt.NDArray[np.generic] | None = None,
        root: Path | None = None,
    ) -> None:
        sparse = labels if isinstance(labels, SparseLabels) else SparseLabels.from_dense(labels)
        if sparse.shape != (len(items), len(classes)):
            raise DataError(f"labels are {sparse.shape}, not items by classes {(len(items), len(classes))}")
        if not classes:
            raise DataError("the table has no classes; give at least one label")
        if x is not None and len(x) != len(items):
            raise DataError(f"x has {len(x)} rows, the table {len(items)}")
        for name, value in {"items": items, "classes": list(classes), "sparse": sparse, "x": x, "root": root}.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def labels(self) -> Labels:
        """All labels as a dense int8 array; refused above 2 GiB."""
        items, classes = self.sparse.shape
        if items * classes > DENSE_LIMIT:
            raise DataError(f"{items:,} x {classes:,} labels take {items * classes / 2**30:.1f} GiB; use .rows(index)")
        return self.rows(np.arange(items))

    def rows(self, index: npt.ArrayLike) -> Labels:
        """Dense labels of the given rows: what training takes, batch by batch."""
        return self.sparse.rows(index)

    def take(self, index: npt.ArrayLike) -> LabelTable:
        """The table of the given rows, in the given order."""
        wanted = np.asarray(index, dtype=np.int64)
        x = None if self.x is None else self.x[wanted]
        return LabelTable([self.items[i] for i in wanted], self.classes, self.sparse.take(wanted), x=x, root=self.root)

    def with_labels(self, labels: SparseLabels | npt.ArrayLike) -> LabelTable:
        """The same items with other labels."""
        return LabelTable(self.items, self.classes, labels, x=self.x, root=self.root)
