"""Which items are near which, by their feature vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK = 2**24  # distances worked out at once


def standardised(x: Tensor) -> Tensor:
    """Every column with mean 0 and deviation 1, as the classifier has its inputs; a constant column is 0."""
    deviation = x.std(dim=0, correction=0)
    return (x - x.mean(dim=0)) / torch.where(deviation > 0, deviation, 1)


def feature_table(x: Any, items: int) -> Tensor:
    """The features of the training split in double precision, refused where they do not fit it."""
    table = torch.as_tensor(x).double()
    if table.ndim != 2 or len(table) != items:
        raise ValueError(
            f"x must be features of the {items} items, one row each; it has shape {tuple(table.shape)}"
        )
    if not bool(table.isfinite().all()):
        raise ValueError("x holds numbers that are not finite; mend or leave out those items")
    return table


def nearest(x: Tensor, k: int) -> Tensor:
    """Of each item itself, then its k nearest others by Euclidean distance, nearest first: (items, 1 + k).

    There are fewer where there are no more items.

    Args:
        x: features (items, features).
        k: how many others.
    """
    items = len(x)
    k = min(k, items - 1)
    near = torch.empty(items, 1 + k, dtype=torch.int64, device=x.device)
    step = max(1, BLOCK // items)
    for first in range(0, items, step):
        distances = torch.cdist(x[first : first + step], x)
        distances.diagonal(first).fill_(-1.0)  # itself comes first, before any copy of it
        near[first : first + step] = distances.topk(1 + k, largest=False).indices
    return near
