"""Values and gradients of the library's losses on one unknown label, by its confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Q3 = (0.001, 0.25, 0.5, 0.75, 1.0, 1.5)
POINTS = 199  # confidences, evenly from 0.005 to 0.995


@dataclass(frozen=True)
class Curve:
    """A quantity by confidence p."""

    label: str
    p: list[float]
    values: list[float]


def at_unknown(
    method: str, options: dict[str, Any], p: Sequence[float] | None = None
) -> tuple[list[float], list[float], list[float]]:
    """Return confidences, the loss of an unknown label at each, and the gradient of its logit.

    Without `p`, the confidences are those of the figures.
    """
    import torch

    from spml import losses

    confidence = np.linspace(0.005, 0.995, POINTS) if p is None else np.asarray(p, np.float64)
    logits = torch.logit(torch.from_numpy(confidence)).reshape(-1, 1).requires_grad_()
    loss = losses.create(method, **{**options, "reduction": "none"})
    entries = loss(logits, torch.zeros(logits.shape, dtype=torch.int8))
    (gradient,) = torch.autograd.grad(entries.sum(), logits)
    return confidence.tolist(), entries.detach().flatten().tolist(), gradient.flatten().tolist()


def loss_curves() -> list[Curve]:
    """Return L3 for several q3, and cross-entropy, its limit for q3 towards 0."""
    curves = []
    for q in Q3:
        p, values, _ = at_unknown("gr", {"khat": False, "v": False, "q3": q})
        curves.append(Curve(f"q3 = {q:g}", p, values))
    p, values, _ = at_unknown("an", {})
    return [*curves, Curve("cross-entropy", p, values)]


def gradient_curves() -> list[Curve]:
    """Return the paper's gradients: GR at both ends of beta (v = 1), EM (weight 1) and Hill."""
    cases: dict[str, tuple[str, dict[str, Any]]] = {"GR, β(0)": ("gr", _gr("voc", 0))}
    for data, name in (("voc", "VOC"), ("coco", "COCO")):
        cases[f"GR, β(T) of {name}"] = ("gr", _gr(data, 1))
    cases |= {"EM": ("em", {"alpha": 1.0}), "Hill": ("hill", {})}
    curves = []
    for label, (method, options) in cases.items():
        p, _, gradient = at_unknown(method, options)
        curves.append(Curve(label, p, gradient))
    return curves


def _gr(data: str, end: int) -> dict[str, Any]:
    """Return GR's published options with v = 1 and beta fixed at its start (0) or end (1)."""
    from spml import losses

    usual = {option.name: option.default for option in losses.options("gr")}
    options = {**usual, **losses.preset("gr", data).options}
    return {**options, "w": options["w"][end], "b": options["b"][end], "v": False}
