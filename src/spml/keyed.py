"""Random numbers keyed by seed, epoch and item.

A number depends only on its key, never on the process that draws it or on the order of draws.
"""

import hashlib
import math

import torch
from torch import Tensor


def key(*parts: int) -> int:
    """Hash the parts to a seed below 2^63."""
    digest = hashlib.sha256(",".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def bits(index: Tensor, salt: int) -> Tensor:
    """Return 64 random bits for each entry of an integer tensor (splitmix64)."""
    mixed = index.to(torch.int64) * -7046029254386353131 + salt
    mixed = (mixed ^ _shift(mixed, 30)) * -4658895280553007687
    mixed = (mixed ^ _shift(mixed, 27)) * -7723592293110705685
    return mixed ^ _shift(mixed, 31)


def coin(index: Tensor, seed: int, epoch: int) -> Tensor:
    """Toss a fair coin for each item of this epoch."""
    return bits(index, key(seed, epoch)) < 0


def uniform(index: Tensor, salt: int, *shape: int) -> Tensor:
    """Draw float32 numbers strictly between 0 and 1, of shape (items, *shape)."""
    places = torch.arange(math.prod(shape), device=index.device)
    mixed = bits(bits(index, salt)[:, None] + places, salt ^ 0x5DEECE66D)
    return ((_shift(mixed, 41).float() + 0.5) / 2**23).view(len(index), *shape)


def normal(index: Tensor, salt: int, *shape: int) -> Tensor:
    """Draw standard normal float32 numbers of shape (items, *shape) (Box and Muller)."""
    radius, angle = uniform(index, salt, 2, *shape).unbind(dim=1)
    return (-2 * radius.log()).sqrt() * torch.cos(2 * math.pi * angle)


def _shift(value: Tensor, count: int) -> Tensor:
    return (value >> count) & ((1 << (64 - count)) - 1)
