"""The resize of `spml.data.images.decode` in plain arithmetic, to the bit, so that it can travel with a model."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_BITS = 22  # of a weight's fraction
SIGNED = 1 << 15  # weights stay below


def exact_resize(pictures: Tensor, size: int) -> Tensor:
    """Pictures of any size (B, 3, H, W), uint8 or whole numbers, to whole numbers (B, 3, size, size) as float32.

    torch resizes uint8 pictures with weights that are rounded to 16-bit whole numbers, and rounds after each of the two
    passes, first along rows, then along columns. A grey level more or less moves what a model says by far more than
    rounding in floating point does, so the same is done here: products and sums of whole numbers, exact in float64.

    Args:
        pictures: to be resized; the aspect is not kept.
        size: height and width.
    """
    x = pictures.double()
    weights, one = _weights(x.shape[3], size, x.device)
    x = _rounded(x @ weights.T, one)
    weights, one = _weights(x.shape[2], size, x.device)
    return _rounded(weights @ x, one).float()


def _rounded(sums: Tensor, one: Tensor) -> Tensor:
    return torch.floor((sums + one / 2) / one).clamp(0, 255)


def _weights(length: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Whole weights (size, length) of antialiased bilinear resizing, and what stands for 1 among them."""
    places = torch.arange(length, dtype=torch.float64, device=device)
    scale = (places[-1:] + 1) / size
    centres = scale * (torch.arange(size, dtype=torch.float64, device=device) + 0.5)
    distances = (places[None] - centres[:, None] + 0.5).abs() * (1 / scale.clamp(min=1))
    weights = (1 - distances).clamp(min=0)
    weights = weights / weights.sum(dim=1, keepdim=True)
    powers = 2.0 ** torch.arange(1, MOST_BITS + 1, dtype=torch.float64, device=device)
    fits = torch.floor(0.5 + weights.max() * powers) < SIGNED
    one = torch.where(fits, powers, 1.0).max()  # the largest power of two whose weights all fit
    return torch.floor(0.5 + weights * one), one
