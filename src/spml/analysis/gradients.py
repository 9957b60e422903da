"""Values and gradients of the library's losses on one unknown label, by its confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from spml import losses

Q3 = (0.001, 0.25, 0.5, 0.75, 1.0, 1.5)
P = np.linspace(0.005, 0.995, 199).tolist()  # confidences


@dataclass(frozen=True)
class Curve:
    """A quantity by confidence p."""

    label: str
    p: list[float]
    values: list[float]


def at_unknown(
    method: str, options: dict[str, Any], p: Sequence[float] = P
) -> tuple[list[float], list[float]]:
    """Return the loss of an unknown label at each confidence, and the gradient of its logit."""
    logits = torch.logit(torch.tensor(p, dtype=torch.float64)).reshape(-1, 1).requires_grad_()
    loss = losses.create(method, **{**options, "reduction": "none"})
    entries = loss(logits, torch.zeros(logits.shape, dtype=torch.int8))
    (gradient,) = torch.autograd.grad(entries.sum(), logits)
    return entries.detach().flatten().tolist(), gradient.flatten().tolist()


def loss_curves() -> list[Curve]:
    """Return L3 for several q3, and cross-entropy, its limit for q3 towards 0."""
    bare = {"khat": False, "v": False}
    curves = {f"q3 = {q:g}": at_unknown("gr", {**bare, "q3": q})[0] for q in Q3}
    curves["cross-entropy"] = at_unknown("an", {})[0]
    return [Curve(label, P, values) for label, values in curves.items()]


def gradient_curves() -> list[Curve]:
    """Return the paper's gradients: GR at both ends of beta (v = 1), EM (weight 1) and Hill."""
    cases: dict[str, tuple[str, dict[str, Any]]] = {"GR, β(0)": ("gr", _gr("voc", 0))}
    for data, name in (("voc", "VOC"), ("coco", "COCO")):
        cases[f"GR, β(T) of {name}"] = ("gr", _gr(data, 1))
    cases |= {"EM": ("em", {"alpha": 1.0}), "Hill": ("hill", {})}
    return [Curve(label, P, at_unknown(*case)[1]) for label, case in cases.items()]


def _gr(data: str, end: int) -> dict[str, Any]:
    """Return GR's published options with v = 1 and beta fixed at its start (0) or end (1)."""
    usual = {option.name: option.default for option in losses.options("gr")}
    options = {**usual, **losses.preset("gr", data).options}
    return {**options, "w": options["w"][end], "b": options["b"][end], "v": False}
