"""Views of training pictures, keyed by (seed, epoch, item): independent of batch and process."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from spml.data.images.loader import Rows
from spml.keyed import coin, key, uniform

ASPECT = 4 / 3  # largest ratio of a crop's sides
# Of the strong view:
JITTER = (0.4, 0.4, 0.4, 0.1)  # of brightness, contrast, saturation and hue
CUTOUT = 0.5  # side of the square, as a share of the picture's
OPERATIONS = 2  # of RandAugment
STRENGTH = 9 / 30  # of them
SALT = 17  # of the key: other random numbers than those of the first view


def boxes(index: Tensor, seed: int, epoch: int, *, crop: float, flip: bool) -> Tensor:
    """Draw the visible part of each picture: (B, 4), left, top, right, bottom in 0..1.

    Left is greater than right if the picture is mirrored. A crop covers at least the share `crop`
    of the area; 1 shows the whole picture.
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


def strong_view(pictures: Tensor, rows: Rows, seed: int, epoch: int) -> Tensor:
    """Apply cutout, RandAugment, colour jitter and greyscale to uint8 pictures (B, 3, H, W).

    These are the transforms of Xie et al. (2022), in that order. RandAugment has two operations of
    magnitude 9 of 30 and the square is grey; the publication does not state its choices.
    """
    views = [
        transformed(x, np.random.default_rng((seed, epoch, int(row), SALT)))
        for x, row in zip(pictures, rows, strict=True)
    ]
    return torch.stack(views)


def transformed(picture: Tensor, random: np.random.Generator) -> Tensor:
    """Return the strong view of one picture."""
    picture = cut_out(picture, random)
    for _ in range(OPERATIONS):
        picture = operation(picture, random)
    if random.random() < 0.8:
        picture = jittered(picture, random)
    if random.random() < 0.2:
        picture = tv.rgb_to_grayscale(picture, num_output_channels=3)
    return picture


def jittered(picture: Tensor, random: np.random.Generator) -> Tensor:
    """Change brightness, contrast, saturation and hue, in random order."""
    brightness, contrast, saturation, hue = random.uniform(-1, 1, 4) * JITTER
    steps: list[Callable[[Tensor], Tensor]] = [
        lambda x: tv.adjust_brightness(x, 1 + brightness),
        lambda x: tv.adjust_contrast(x, 1 + contrast),
        lambda x: tv.adjust_saturation(x, 1 + saturation),
        lambda x: tv.adjust_hue(x, hue),
    ]
    for number in random.permutation(len(steps)):
        picture = steps[number](picture)
    return picture


def operation(picture: Tensor, random: np.random.Generator) -> Tensor:
    """Apply one operation of RandAugment at a fixed magnitude, in a random direction."""
    sign = float(random.choice((-1.0, 1.0)))
    factor, slant = 1 + 0.9 * sign * STRENGTH, float(np.degrees(np.arctan(0.3 * sign * STRENGTH)))
    down, across = (round(sign * STRENGTH * 150 / 331 * side) for side in picture.shape[-2:])
    operations: list[Callable[[Tensor], Tensor]] = [
        lambda x: x,
        lambda x: tv.affine(x, 0, [0, 0], 1, [slant, 0], center=[0, 0]),
        lambda x: tv.affine(x, 0, [0, 0], 1, [0, slant], center=[0, 0]),
        lambda x: tv.affine(x, 0, [across, 0], 1, [0, 0]),
        lambda x: tv.affine(x, 0, [0, down], 1, [0, 0]),
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


def cut_out(picture: Tensor, random: np.random.Generator) -> Tensor:
    """Cover the part of the picture inside a square around a random point with grey."""
    height, width = picture.shape[-2:]
    half = round(CUTOUT * min(height, width)) // 2
    y, x = int(random.integers(height)), int(random.integers(width))
    picture = picture.clone()
    picture[:, max(y - half, 0) : y + half, max(x - half, 0) : x + half] = 127
    return picture
