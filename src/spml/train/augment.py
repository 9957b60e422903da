"""Augmentation on the device, keyed by (seed, epoch, item): the same whatever the batch, worker or process."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def key(*parts: int) -> int:
    """A number below 2^63 that stands for the parts, for seeding."""
    digest = hashlib.sha256(",".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def coin(index: Tensor, seed: int, epoch: int) -> Tensor:
    """A fair coin for each item of this epoch."""
    mixed = index.to(torch.int64) * -7046029254386353131 + key(seed, epoch)  # splitmix64
    mixed = (mixed ^ _shift(mixed, 30)) * -4658895280553007687
    mixed = (mixed ^ _shift(mixed, 27)) * -7723592293110705685
    return (mixed ^ _shift(mixed, 31)) < 0


def _shift(value: Tensor, bits: int) -> Tensor:
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def mirror(pictures: Tensor, index: Tensor, seed: int, epoch: int) -> Tensor:
    """Pictures (B, 3, H, W), about half of them mirrored left to right."""
    return torch.where(coin(index, seed, epoch).view(-1, 1, 1, 1), pictures.flip(-1), pictures)
