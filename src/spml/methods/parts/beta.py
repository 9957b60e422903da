"""Beta distributions over labels: samples keyed by item, divergence from uniform."""

import math

import torch
from torch import Tensor

from spml import keyed

# Gamma variables are sampled with a concentration raised by LIFT and then lowered, which makes
# rejections rare. The first accepted proposal counts; all are rejected once in 10^10 samples.
LIFT = 8
PROPOSALS = 4
FLOOR = 1e-6  # lower bound of concentrations inside lgamma and digamma
LIMIT = math.log((1 - 1e-5) / 1e-5)  # bound of the absolute value of a sample's logit


def draw(a: Tensor, b: Tensor, index: Tensor, salt: int) -> Tensor:
    """Logits of samples from Beta(a, b), differentiable in a and b.

    With small concentrations nearly all samples are close to 0 or 1. Samples are clamped to 1e-5
    and 1 - 1e-5, where the gradient is 0, so the log of a sample and its gradient are bounded.

    The salt selects the random numbers; an item, a row of `index`, has the same ones in any batch.
    """
    classes = a.shape[1]
    normals = keyed.normal(index, salt, PROPOSALS, 2, classes).to(a.dtype)
    uniforms = keyed.uniform(index, salt + 1, PROPOSALS + LIFT, 2, classes).to(a.dtype)
    first, second = _log_gamma(torch.stack([a, b], dim=1), normals, uniforms.log()).unbind(dim=1)
    return (first - second).clamp(-LIMIT, LIMIT)


def _log_gamma(shape: Tensor, normals: Tensor, logs: Tensor) -> Tensor:
    """Log of a sample from Gamma(shape) for each entry (Marsaglia and Tsang, 2000), differentiable.

    It needs PROPOSALS normal numbers and the logs of PROPOSALS + LIFT uniform ones, along axis 1.
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
    """The divergence of SMILE's published code: lgamma has the other sign, a + b no term."""
    a, b = a.clamp(min=FLOOR), b.clamp(min=FLOOR)
    return torch.lgamma(a) + torch.lgamma(b) + _slopes(a, b)


def _slopes(a: Tensor, b: Tensor) -> Tensor:
    return (a - 1) * torch.digamma(a) + (b - 1) * torch.digamma(b)
