"""The resize of `spml.data.images.decode` in plain arithmetic, bit for bit, for exported models."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_BITS = 22  # fraction bits of a weight
SIGNED = 1 << 15  # weights are below it


def exact_resize(pictures: Tensor, size: int) -> Tensor:
    """Resize whole-number pictures (B, 3, H, W) to whole numbers (B, 3, size, size) in float32.

    torch resizes uint8 pictures with weights rounded to 16-bit integers, and rounds after each of
    the two passes, first along rows, then along columns. One grey level moves a model's output far
    more than floating-point rounding does, so this function repeats the same integer arithmetic,
    which is exact in float64.

    Args:
        pictures: pictures of any size; the aspect ratio is not kept.
        size: height and width of the result.
    """
    x = pictures.double()
    weights, one = _weights(x.shape[3], size, x.device)
    x = _rounded(x @ weights.T, one)
    weights, one = _weights(x.shape[2], size, x.device)
    return _rounded(weights @ x, one).float()


def _rounded(sums: Tensor, one: Tensor) -> Tensor:
    return torch.floor((sums + one / 2) / one).clamp(0, 255)


def _weights(length: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Integer weights (size, length) of antialiased bilinear resizing, and the integer for 1."""
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
