"""Calibration: map a model's logits to logits whose sigmoid is a calibrated probability."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Knots = list[list[list[float]]]


class Calibration(nn.Module):
    """A non-decreasing piecewise linear map of logits per class, extended linearly beyond its ends.

    Scaling and shifting needs two knots and isotonic regression more; without knots the map is the
    identity. It uses only additions, products, minima and maxima, so that it exports to ONNX.

    Args:
        knots: for each class a pair of lists of two or more numbers, logits (strictly rising) and
            calibrated logits (not falling); None leaves logits as they are.
        classes: number of classes.
    """

    start: Tensor
    base: Tensor
    bends: Tensor
    slopes: Tensor
    widths: Tensor

    def __init__(self, knots: Knots | None, classes: int) -> None:
        super().__init__()
        lines = [([0.0, 1.0], [0.0, 1.0])] * classes if knots is None else knots
        if problem := calibration_problem(lines, classes):
            raise ValueError(problem)
        self.lines = lines
        most = max(len(x) for x, _ in lines)
        slopes = [np.diff(y) / np.diff(x) for x, y in lines]
        tables = {
            "start": [x[0] for x, _ in lines],
            "base": [y[0] for _, y in lines],
            "bends": [list(x[:-1]) + [x[0]] * (most - len(x)) for x, _ in lines],
            "slopes": [[*slope.tolist(), *[0.0] * (most - len(slope) - 1)] for slope in slopes],
            "widths": [
                [*np.diff(x[:-1]).tolist(), np.inf, *[0.0] * (most - len(x))] for x, _ in lines
            ],
        }
        for name, values in tables.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        """Calibrated logits (..., classes); their sigmoid is the probability."""
        logits = logits.float()
        if self.slopes.shape[1] == 1:
            # ONNX cannot hold a sum over an empty axis
            return self.base + self.slopes[:, 0] * (logits - self.start)
        first = self.slopes[:, 0] * torch.minimum(logits - self.start, self.widths[:, 0])
        # each part stops at its own width: steep parts that cancel later would lose all digits
        beyond = (logits.unsqueeze(-1) - self.bends[:, 1:]).clamp(min=0)
        later = torch.minimum(beyond, self.widths[:, 1:]) * self.slopes[:, 1:]
        return self.base + first + later.sum(-1)

    def inverse(self, calibrated: Tensor) -> Tensor:
        """The lowest logit of each class that gives its calibrated logit, on a rising segment."""
        logits = []
        for (x, y), wanted in zip(self.lines, calibrated.double().tolist(), strict=True):
            segment = min(max(int(np.searchsorted(y, wanted)) - 1, 0), len(x) - 2)
            rise = (y[segment + 1] - y[segment]) / (x[segment + 1] - x[segment])
            logits.append(x[segment] + (wanted - y[segment]) / rise if rise > 0 else x[segment])
        return torch.tensor(logits, dtype=torch.float32)


class Lines:
    """`Calibration` for numpy arrays, in float64."""

    def __init__(self, knots: Knots) -> None:
        most = max(len(x) for x, _ in knots)
        padding = [[0.0] * (most - len(x)) for x, _ in knots]
        slopes = [np.diff(y) / np.diff(x) for x, y in knots]
        self.x = np.array([[*x, *pad] for (x, _), pad in zip(knots, padding, strict=True)])
        self.y = np.array([[*y, *pad] for (_, y), pad in zip(knots, padding, strict=True)])
        self.slopes = np.array([[*s, *pad] for s, pad in zip(slopes, padding, strict=True)])
        # the last segment of a class has no end, so its last knot starts no other
        self.bends = np.full((len(knots), most - 2), np.inf)
        for row, (x, _) in zip(self.bends, knots, strict=True):
            row[: len(x) - 2] = x[1:-1]

    def __call__(self, logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Calibrated logits (items, classes)."""
        segment = np.zeros(logits.shape, np.intp)
        for bend in self.bends.T:
            segment += logits >= bend
        column = np.arange(len(self.x))
        start, base = self.x[column, segment], self.y[column, segment]
        return np.asarray(base + self.slopes[column, segment] * (logits - start), np.float64)


def apply_lines(logits: npt.NDArray[np.float64], knots: Knots | None) -> npt.NDArray[np.float64]:
    """Calibrated logits (items, classes) in float64; the logits themselves without knots."""
    return logits if knots is None else Lines(knots)(logits)


def calibration_problem(lines: Any, classes: int) -> str | None:
    """Return what is wrong with knots, or None."""
    if not isinstance(lines, Sequence) or len(lines) != classes:
        return f"calibration must have a line for each of {classes} classes"
    for pair in lines:
        try:
            x, y = (np.asarray(values, np.float64) for values in pair)
        except (TypeError, ValueError):
            return "a line of calibration must be two lists of numbers"
        if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
            return "a line of calibration must be two lists of the same length, two or more"
        finite = np.isfinite(x).all() and np.isfinite(y).all()
        if not finite or (np.diff(x) <= 0).any() or (np.diff(y) < 0).any():
            return "a line of calibration must rise"
    return None
