"""Beta distributions over labels: draws keyed by item, and their divergence from the uniform distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spml import keyed

LIFT = 8  # a concentration is drawn this much higher and then brought down, so that few proposals are turned down
PROPOSALS = 4  # of each gamma draw; the first accepted one counts, and that all are turned down is one case in 10^10
FLOOR = 1e-6  # concentrations inside lgamma and digamma are not below this
LIMIT = math.log((1 - 1e-5) / 1e-5)  # a draw's logit stays within plus and minus this


def draw(a: Tensor, b: Tensor, index: Tensor, salt: int) -> Tensor:
    """Logits of numbers drawn from Beta(a, b), whose slopes at a and b are those of the drawn numbers.

    With small concentrations nearly all draws are next to 0 or 1; what is beyond 1e-5 and 1 - 1e-5 is moved there,
    where it has no slope, so that neither the log of a draw nor the slope of that log grows without bound.

    Args:
        a: (items, classes), above 0.
        b: as a.
        index: of the items; an item has the same random numbers in any batch.
        salt: other random numbers for another salt.
    """
    classes = a.shape[1]
    normals = keyed.normal(index, salt, PROPOSALS, 2, classes).to(a.dtype)
    uniforms = keyed.uniform(index, salt + 1, PROPOSALS + LIFT, 2, classes).to(a.dtype)
    first, second = _log_gamma(torch.stack([a, b], dim=1), normals, uniforms.log()).unbind(dim=1)
    return (first - second).clamp(-LIMIT, LIMIT)


def _log_gamma(shape: Tensor, normals: Tensor, logs: Tensor) -> Tensor:
    """Log of a draw from Gamma(shape) for each entry (Marsaglia and Tsang, 2000), differentiable in the shape.

    Args:
        shape: (items, ...).
        normals: of the proposals, (items, PROPOSALS, ...).
        logs: of uniform numbers, (items, PROPOSALS + LIFT, ...).
    """
    size = shape + (LIFT - 1 / 3)
    width = (9 * size).rsqrt()
    with torch.no_grad():
        cubes = (1 + width[:, None] * normals) ** 3
        bound = normals**2 / 2 + size[:, None] * (1 - cubes + cubes.log())
        first = (logs[:, :PROPOSALS] < bound).to(torch.int8).argmax(dim=1, keepdim=True)
        chosen = normals.gather(1, first).squeeze(1)
    steps = torch.arange(LIFT, device=shape.device).view(-1, *[1] * (shape.ndim - 1))
    lowered = (logs[:, PROPOSALS:] / (shape[:, None] + steps)).sum(dim=1)
    return size.log() + 3 * torch.log1p(width * chosen) + lowered


def divergence(a: Tensor, b: Tensor) -> Tensor:
    """KL(Beta(a, b) || Beta(1, 1)) of each entry."""
    a, b = a.clamp(min=FLOOR), b.clamp(min=FLOOR)
    both = a + b
    logs = torch.lgamma(both) - torch.lgamma(a) - torch.lgamma(b)
    return logs + _slopes(a, b) - (both - 2) * torch.digamma(both)


def released_divergence(a: Tensor, b: Tensor) -> Tensor:
    """What SMILE's published code has in its place: lgamma with the other sign, and no term of a + b."""
    a, b = a.clamp(min=FLOOR), b.clamp(min=FLOOR)
    return torch.lgamma(a) + torch.lgamma(b) + _slopes(a, b)


def _slopes(a: Tensor, b: Tensor) -> Tensor:
    return (a - 1) * torch.digamma(a) + (b - 1) * torch.digamma(b)
