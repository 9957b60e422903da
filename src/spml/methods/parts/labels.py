"""Labels of a whole training split, read in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

ROWS = 4096  # read at once


def rows_of(table: Tensor, index: Tensor | None, batch: Tensor, name: str) -> Tensor:
    """The rows of a method's table for a batch, in its precision; without index, all rows."""
    if index is None and len(batch) != len(table):
        raise ValueError(f"{name} needs index: the rows of the training split that the batch holds")
    rows = table if index is None else table[index]
    if rows.shape != batch.shape:
        shapes = f"{tuple(rows.shape)} of {tuple(table.shape)} for a batch of {tuple(batch.shape)}"
        raise ValueError(
            f"{name} needs index with a row number for each item; this index selects {shapes}"
        )
    return rows.to(batch.dtype)


def row_numbers(index: Tensor | None, batch: Tensor) -> Tensor:
    """The index of a batch; without one, the batch is the whole split."""
    return torch.arange(len(batch), device=batch.device) if index is None else index


def label_parts(observed: Any, items: int, classes: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of rows with their labels, from a table with rows(index) or an array."""
    rows = len(observed) if hasattr(observed, "__len__") else items
    check_fit(
        "observed", (rows, *_labels(observed, slice(0, min(rows, 1))).shape[1:]), items, classes
    )
    for first in range(0, items, ROWS):
        part = slice(first, min(first + ROWS, items))
        yield part, _labels(observed, part)


def _labels(observed: Any, part: slice) -> Tensor:
    return torch.as_tensor(
        observed.rows(range(part.start, part.stop)) if hasattr(observed, "rows") else observed[part]
    )


def check_fit(name: str, shape: tuple[int, ...], items: int | None, classes: int | None) -> None:
    """Raise ValueError if a table has another shape than the training split."""
    if items is not None and classes is not None and tuple(shape) != (items, classes):
        split = f"the training split {(items, classes)}"
        raise ValueError(
            f"{name} is {tuple(shape)}, {split}: give a row for each item, a column for each class"
        )
