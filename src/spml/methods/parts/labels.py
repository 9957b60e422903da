"""Labels of a whole training split, read in parts."""

from typing import Any

import torch
from torch import Tensor

ROWS = 4096  # read at once


def known_labels(observed: Any, items: int, classes: int) -> Tensor:
    """Labels of the training split in int8, from a table with rows(index) or an array."""

    def labels(first: int, last: int) -> Tensor:
        if hasattr(observed, "rows"):
            return torch.as_tensor(observed.rows(range(first, last))).to(torch.int8)
        return torch.as_tensor(observed[first:last]).to(torch.int8)

    rows = len(observed) if hasattr(observed, "__len__") else items
    check_fit("observed", (rows, *labels(0, min(rows, 1)).shape[1:]), items, classes)
    known = torch.empty(items, classes, dtype=torch.int8)
    for first in range(0, items, ROWS):  # a sparse table makes its rows dense part by part
        known[first : first + ROWS] = labels(first, min(first + ROWS, items))
    return known


def check_fit(name: str, shape: tuple[int, ...], items: int, classes: int) -> None:
    """Raise ValueError if a table has another shape than the training split."""
    if tuple(shape) != (items, classes):
        split = f"the training split {(items, classes)}"
        raise ValueError(
            f"{name} is {tuple(shape)}, {split}: give a row for each item, a column for each class"
        )
