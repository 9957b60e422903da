"""A second, strongly augmented view of pictures, keyed by (seed, epoch, item)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from spml.data.feed import Rows

JITTER = (0.4, 0.4, 0.4, 0.1)  # of brightness, contrast, saturation and hue
CUTOUT = 0.5  # side of the square, as a share of the picture's
OPERATIONS = 2  # of RandAugment
STRENGTH = 9 / 30  # of them
ADDED = 17  # to the key, so that a view is not its own item's mirror


def strong_view(pictures: Tensor, rows: Rows, seed: int, epoch: int) -> Tensor:
    """uint8 pictures (B, 3, H, W) after RandAugment, colour jitter, greyscale and a cut-out square (Xie et al., 2022).

    Args:
        pictures: as the first view shows them, mirrored or cut.
        rows: of the training split.
        seed: of the run.
        epoch: from 1.
    """
    views = [
        _one(x, np.random.default_rng((seed, epoch, int(row), ADDED))) for x, row in zip(pictures, rows, strict=True)
    ]
    return torch.stack(views)


def _one(picture: Tensor, random: np.random.Generator) -> Tensor:
    for _ in range(OPERATIONS):
        picture = _operation(picture, random)
    if random.random() < 0.8:
        amounts = random.uniform(-1, 1, 4) * JITTER
        picture = tv.adjust_brightness(picture, 1 + amounts[0])
        picture = tv.adjust_contrast(picture, 1 + amounts[1])
        picture = tv.adjust_saturation(picture, 1 + amounts[2])
        picture = tv.adjust_hue(picture, amounts[3])
    if random.random() < 0.2:
        picture = tv.rgb_to_grayscale(picture, num_output_channels=3)
    return _cut_out(picture, random)


def _operation(picture: Tensor, random: np.random.Generator) -> Tensor:
    """One of RandAugment's operations at its fixed magnitude, in a random direction where it has one."""
    sign = float(random.choice((-1.0, 1.0)))
    factor, slant = 1 + 0.9 * sign * STRENGTH, float(np.degrees(np.arctan(0.3 * sign * STRENGTH)))
    moved = round(sign * STRENGTH * 150 / 331 * picture.shape[-1])
    operations: list[Callable[[Tensor], Tensor]] = [
        lambda x: x,
        lambda x: tv.affine(x, 0, [0, 0], 1, [slant, 0]),
        lambda x: tv.affine(x, 0, [0, 0], 1, [0, slant]),
        lambda x: tv.affine(x, 0, [moved, 0], 1, [0, 0]),
        lambda x: tv.affine(x, 0, [0, moved], 1, [0, 0]),
        lambda x: tv.rotate(x, 30 * sign * STRENGTH),
        lambda x: tv.adjust_brightness(x, factor),
        lambda x: tv.adjust_saturation(x, factor),
        lambda x: tv.adjust_contrast(x, factor),
        lambda x: tv.adjust_sharpness(x, factor),
        lambda x: tv.posterize(x, 8 - round(4 * STRENGTH)),
        lambda x: tv.solarize(x, 255 * (1 - STRENGTH)),
        tv.autocontrast,
        tv.equalize,
    ]
    return operations[int(random.integers(len(operations)))](picture)


def _cut_out(picture: Tensor, random: np.random.Generator) -> Tensor:
    """A grey square about a random point, as far as it lies inside."""
    height, width = picture.shape[-2:]
    half = round(CUTOUT * min(height, width)) // 2
    y, x = int(random.integers(height)), int(random.integers(width))
    picture = picture.clone()
    picture[:, max(y - half, 0) : y + half, max(x - half, 0) : x + half] = 127
    return picture
