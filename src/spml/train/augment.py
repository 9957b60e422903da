"""Random crops on the device, keyed by (seed, epoch, item): independent of batch and process."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from spml.keyed import coin, key, uniform

ASPECT = 4 / 3  # largest ratio of a crop's sides


def boxes(index: Tensor, seed: int, epoch: int, *, crop: float, flip: bool) -> Tensor:
    """Draw the visible part of each picture: (B, 4), left, top, right, bottom in 0..1.

    Left is greater than right if the picture is mirrored.

    Args:
        index: training rows.
        seed: of the run.
        epoch: from 1.
        crop: smallest share of the area that a crop covers; 1 shows the whole picture.
        flip: mirror about half of the pictures.
    """
    zero = torch.zeros(len(index), device=index.device)  # a copy from the CPU would wait for it
    left, top, right, bottom = zero, zero, zero + 1, zero + 1
    if crop < 1:
        share, shape, across, down = uniform(index, key(seed, epoch, 3), 4).unbind(dim=1)
        side = (crop + (1 - crop) * share).sqrt()
        # a large crop cannot be narrow
        stretch = (ASPECT ** (shape - 0.5)).clamp(min=side, max=1 / side)
        width, height = side * stretch, side / stretch
        left, top = across * (1 - width), down * (1 - height)
        right, bottom = left + width, top + height
    if flip:
        mirrored = coin(index, seed, epoch)
        left, right = torch.where(mirrored, right, left), torch.where(mirrored, left, right)
    return torch.stack([left, top, right, bottom], dim=1)


def cut(pictures: Tensor, seen: Tensor) -> Tensor:
    """Crop pictures or feature maps to the boxes and resize them back (bilinear)."""
    left, top, right, bottom = (2 * seen.to(torch.float32) - 1).unbind(dim=1)
    zero = torch.zeros_like(left)
    across = torch.stack([(right - left) / 2, zero, (right + left) / 2], dim=1)
    down = torch.stack([zero, (bottom - top) / 2, (bottom + top) / 2], dim=1)
    transform = torch.stack([across, down], dim=1)
    grid = F.affine_grid(transform, list(pictures.shape), align_corners=False)
    values = pictures if pictures.is_floating_point() else pictures.float()
    crops = F.grid_sample(values, grid.to(values.dtype), padding_mode="border", align_corners=False)
    if pictures.is_floating_point():
        return crops
    return crops.round().clamp(0, 255).to(pictures.dtype)
