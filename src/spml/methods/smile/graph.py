"""Nearest neighbours of items by their feature vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK = 2**24  # distances computed at once


def standardised(x: Tensor) -> Tensor:
    """Scale every column to mean 0 and deviation 1, as for the classifier; constant ones to 0."""
    deviation = x.std(dim=0, correction=0)
    return (x - x.mean(dim=0)) / torch.where(deviation > 0, deviation, 1)


def feature_table(x: Any, items: int) -> Tensor:
    """Features of the training split in double precision; ValueError if they do not fit it."""
    table = torch.as_tensor(x).double()
    if table.ndim != 2 or len(table) != items:
        raise ValueError(
            f"x must have one row for each of the {items} items; it has shape {tuple(table.shape)}"
        )
    if not bool(table.isfinite().all()):
        raise ValueError("x holds numbers that are not finite; correct or remove those items")
    return table


def nearest(x: Tensor, k: int) -> Tensor:
    """Each item and its k nearest others by Euclidean distance, nearest first: (items, 1 + k).

    With k items or fewer, all others are neighbours.

    Args:
        x: features (items, features).
        k: number of neighbours.
    """
    items = len(x)
    k = min(k, items - 1)
    near = torch.empty(items, 1 + k, dtype=torch.int64, device=x.device)
    step = max(1, BLOCK // items)
    for first in range(0, items, step):
        distances = torch.cdist(x[first : first + step], x)
        distances.diagonal(first).fill_(-1.0)  # the item itself comes first, before its duplicates
        near[first : first + step] = distances.topk(1 + k, largest=False).indices
    return near
