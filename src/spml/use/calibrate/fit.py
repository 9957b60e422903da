"""Fit a calibration, a rising line per class, and the threshold of a class for a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.model.calibration import Knots

Array = npt.NDArray[np.float64]
Shape = Literal["temperature", "isotonic", "none"]

SLOPE_SD = 0.3  # of the logarithm of a class's slope, around the shared one
SHIFT_SD = 1.0  # of a class's shift, around the shared one
KNOTS = 24  # of an isotonic line, at most
NAMES = ("f1", "precision", "recall")
FEWEST = 20  # expected positives, and negatives, that an isotonic line of its own needs


def fit_lines(logits: Array, chances: Array, shape: Shape) -> Knots | None:
    """A rising line per class, so that its sigmoid is the chance of the label; None for no change.

    "temperature" scales and shifts; "isotonic" also bends the lines of classes with enough
    positives.
    """
    if shape == "none":
        return None
    slopes, shifts = straight(logits, chances)
    ends = np.array([logits.min(axis=0), logits.max(axis=0)])
    ends[1] = np.maximum(ends[1], ends[0] + 1)
    knots = [
        [ends[:, c].tolist(), (slopes[c] * ends[:, c] + shifts[c]).tolist()]
        for c in range(logits.shape[1])
    ]
    if shape == "isotonic":
        for c in range(logits.shape[1]):
            total = chances[:, c].sum()
            if min(total, len(chances) - total) >= FEWEST:
                knots[c] = _bent(logits[:, c], chances[:, c], slopes[c])
    return knots


def straight(logits: Array, chances: Array) -> tuple[Array, Array]:
    """Slope and shift of each class by logistic regression, shrunk towards the shared ones."""
    from scipy.optimize import minimize

    classes = logits.shape[1]
    pull = np.concatenate(
        [[0.0, 0.0], np.full(classes, SHIFT_SD**-2), np.full(classes, SLOPE_SD**-2)]
    )
    pull[:2] = 1e-4  # keeps the slope finite if logits separate the labels without error

    def cost(x: Array) -> tuple[float, Array]:
        slopes = np.exp(x[0] + x[2 + classes :])
        lines = slopes * logits + x[1] + x[2 : 2 + classes]
        with np.errstate(over="ignore"):
            rest = 1 / (1 + np.exp(-lines)) - chances
        value = (np.logaddexp(0, lines) - chances * lines).sum() + (pull * x * x).sum() / 2
        turn, shift = slopes * (rest * logits).sum(axis=0), rest.sum(axis=0)
        return float(value), np.concatenate([[turn.sum(), shift.sum()], shift, turn]) + pull * x

    bounds = [(-8.0, 8.0), *[(None, None)] * (1 + classes), *[(-3.0, 3.0)] * classes]
    x = minimize(cost, np.zeros(2 + 2 * classes), jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.exp(x[0] + x[2 + classes :]), x[1] + x[2 : 2 + classes]


def straight_step(
    logits: Array, chances: Array, counts: Array, slopes: Array, shifts: Array
) -> tuple[Array, Array]:
    """Slopes and shifts for slightly different chances and counts, by one Newton step per class."""
    with np.errstate(over="ignore"):
        p = 1 / (1 + np.exp(-(slopes * logits + shifts)))
    rest, spread = (chances - p) * counts[:, None], p * (1 - p) * counts[:, None]
    turn = slopes * logits  # derivative by the logarithm of the slope
    by = np.stack([(rest * turn).sum(axis=0), rest.sum(axis=0)])
    a, b, c = ((spread * part).sum(axis=0) for part in (turn**2, turn, 1.0))
    a, c = a + SLOPE_SD**-2, c + SHIFT_SD**-2
    ground = a * c - b * b
    step = np.clip([(c * by[0] - b * by[1]) / ground, (a * by[1] - b * by[0]) / ground], -1, 1)
    return slopes * np.exp(step[0]), shifts + step[1]


def _bent(logits: Array, chances: Array, slope: float) -> list[list[float]]:
    """An isotonic line through at most KNOTS points, extended by the straight line's slope."""
    from sklearn.isotonic import IsotonicRegression

    least = 0.5 / len(logits)
    rising = IsotonicRegression(y_min=least, y_max=1 - least).fit(logits, chances)
    x, p = rising.X_thresholds_, rising.y_thresholds_
    if len(x) > KNOTS:
        chosen = np.unique(np.round(np.linspace(0, len(x) - 1, KNOTS)).astype(np.int64))
        x, p = x[chosen], p[chosen]
    y = np.log(p) - np.log1p(-p)
    return [
        [float(x[0]) - 1, *x.tolist(), float(x[-1]) + 1],
        [float(y[0] - slope), *y.tolist(), float(y[-1] + slope)],
    ]


def logit(p: Array) -> Array:
    """Finite logits of probabilities from 0 to 1."""
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(inside) - np.log1p(-inside), np.float64)


@dataclass(frozen=True)
class Target:
    """The target of each class's threshold: the highest F1, or a least precision or recall."""

    name: str = "f1"
    least: float = 0.0

    def __str__(self) -> str:
        return self.name if self.name == "f1" else f"{self.name}={self.least:g}"

    @classmethod
    def parse(cls, text: str) -> Target:
        """From "f1", "precision=0.9" or "recall=0.9"."""
        name, equals, number = text.partition("=")
        if name == "f1" and not equals:
            return cls()
        try:
            least = float(number)
        except ValueError:
            least = -1.0
        if name not in NAMES[1:] or not 0 < least < 1:
            raise UserError(
                f"--aim {text}: write f1, precision=0.9 or recall=0.9, "
                "with a number between 0 and 1"
            )
        return cls(name, least)


def threshold(probabilities: Array, target: Target, weights: Array | None = None) -> float:
    """The threshold of one class, half-way between the last tagged item and the next.

    The expected number of right tags among items is the sum of their calibrated probabilities. If
    no item is sure enough for the least precision, the threshold is that precision: an item that
    reaches it is sure enough. Probabilities are written as float32, in which the highest are all 1:
    items that float32 merges are tagged together. `weights` says how often each item counts.
    """
    order = np.argsort(-probabilities, kind="stable")
    p = probabilities[order]
    w = np.ones(len(p)) if weights is None else weights[order]
    right, tagged = np.cumsum(w * p), np.cumsum(w)
    written = p.astype(np.float32)
    # a threshold needs a float32 between an item and the next
    lower = written[1:] < np.nextafter(written[:-1], np.float32(0))
    last = np.append(lower, True) & (tagged > 0)
    if target.name == "f1":
        good = 2 * right / np.maximum(tagged + right[-1], 1e-300)
        place = int(np.where(last, good, -1.0).argmax())
    elif target.name == "precision":
        enough = last & (right >= target.least * tagged)
        if not enough.any():
            return target.least
        place = int(np.flatnonzero(enough)[-1])
    else:
        enough = last & (right >= target.least * right[-1] * (1 - 1e-12))
        place = int(np.flatnonzero(enough)[0])
    below = written[place + 1] if place + 1 < len(p) else np.float32(0)
    return float((written[place] + below) / 2)


def thresholds(probabilities: Array, target: Target, weights: Array | None = None) -> Array:
    """The threshold of every class."""
    return np.array([threshold(column, target, weights) for column in probabilities.T])
