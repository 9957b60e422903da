"""Augmentation on the device, keyed by (seed, epoch, item): the same whatever the batch, worker or process."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from spml.keyed import coin, key, uniform

ASPECT = 4 / 3  # a cut-out part is at most this many times as wide as high, or as high as wide


def mirror(pictures: Tensor, index: Tensor, seed: int, epoch: int) -> Tensor:
    """Pictures (B, 3, H, W), about half of them mirrored left to right."""
    return torch.where(coin(index, seed, epoch).view(-1, 1, 1, 1), pictures.flip(-1), pictures)


def boxes(index: Tensor, seed: int, epoch: int, *, crop: float | None, flip: bool) -> Tensor:
    """What part of each picture is seen: (B, 4), left, top, right, bottom in 0..1; left > right where mirrored.

    Args:
        index: rows of the training split.
        seed: of the run.
        epoch: from 1.
        crop: the smallest share of the area that a part may have; None is the whole.
        flip: mirror about half of them.
    """
    zero = torch.zeros(
        len(index), device=index.device
    )  # made there: a copy from here would wait for the device
    left, top, right, bottom = zero, zero, zero + 1, zero + 1
    if crop is not None:
        share, shape, across, down = uniform(index, key(seed, epoch, 3), 4).unbind(dim=1)
        side = (crop + (1 - crop) * share).sqrt()
        stretch = (ASPECT ** (shape - 0.5)).clamp(
            min=side, max=1 / side
        )  # a large part has no room to be narrow
        width, height = side * stretch, side / stretch
        left, top = across * (1 - width), down * (1 - height)
        right, bottom = left + width, top + height
    if flip:
        turned = coin(index, seed, epoch)
        left, right = torch.where(turned, right, left), torch.where(turned, left, right)
    return torch.stack([left, top, right, bottom], dim=1)


def cut(pictures: Tensor, seen: Tensor) -> Tensor:
    """The parts of the pictures, or maps, that the boxes name, at the pictures' own size (bilinear)."""
    left, top, right, bottom = (2 * seen.to(torch.float32) - 1).unbind(dim=1)
    zero = torch.zeros_like(left)
    across = torch.stack([(right - left) / 2, zero, (right + left) / 2], dim=1)
    down = torch.stack([zero, (bottom - top) / 2, (bottom + top) / 2], dim=1)
    grid = F.affine_grid(
        torch.stack([across, down], dim=1), list(pictures.shape), align_corners=False
    )
    values = pictures if pictures.is_floating_point() else pictures.float()
    taken = F.grid_sample(values, grid.to(values.dtype), padding_mode="border", align_corners=False)
    return taken if pictures.is_floating_point() else taken.round().clamp(0, 255).to(pictures.dtype)
