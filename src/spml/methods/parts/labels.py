"""Labels of a whole training split, read in parts."""

from __future__ import annotations

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


def known_labels(observed: Any, items: int, classes: int) -> Tensor:
    """Labels of the training split in int8, from a table with rows(index) or an array."""

    def labels(first: int, last: int) -> Tensor:
        rows = (
            observed.rows(range(first, last)) if hasattr(observed, "rows") else observed[first:last]
        )
        return torch.as_tensor(rows).to(torch.int8)

    rows = len(observed) if hasattr(observed, "__len__") else items
    check_fit("observed", (rows, *labels(0, min(rows, 1)).shape[1:]), items, classes)
    known = torch.empty(items, classes, dtype=torch.int8)
    for first in range(0, items, ROWS):  # a sparse table makes its rows dense part by part
        known[first : first + ROWS] = labels(first, min(first + ROWS, items))
    return known


def check_fit(name: str, shape: tuple[int, ...], items: int | None, classes: int | None) -> None:
    """Raise ValueError if a table has another shape than the training split."""
    if items is not None and classes is not None and tuple(shape) != (items, classes):
        split = f"the training split {(items, classes)}"
        raise ValueError(
            f"{name} is {tuple(shape)}, {split}: give a row for each item, a column for each class"
        )
