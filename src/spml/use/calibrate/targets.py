"""Which threshold serves an aim, where probabilities are calibrated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.errors import UserError

Array = npt.NDArray[np.float64]
NAMES = ("f1", "precision", "recall")


@dataclass(frozen=True)
class Aim:
    """What thresholds are for: the highest F1 of each class, or at least so much precision or recall."""

    name: str = "f1"
    least: float = 0.0

    def __str__(self) -> str:
        return self.name if self.name == "f1" else f"{self.name}={self.least:g}"

    @classmethod
    def parse(cls, text: str) -> Aim:
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
                f"--aim {text}: write f1, precision=0.9 or recall=0.9, with a number between 0 and 1"
            )
        return cls(name, least)


def threshold(probabilities: Array, aim: Aim, weights: Array | None = None) -> float:
    """The probability from which a class is to be tagged, half-way between the last item taken and the next.

    With calibrated probabilities the expected number of right tags among the items taken is the sum of theirs. Where no
    item is sure enough for the precision asked for, the threshold is that precision: an item that reaches it is.
    Predictions are float32, in which the highest probabilities are all 1: what it cannot tell apart is taken together.

    Args:
        probabilities: calibrated, of one class, over items like those to come.
        aim: what for.
        weights: how often each item counts.
    """
    order = np.argsort(-probabilities, kind="stable")
    p = probabilities[order]
    w = np.ones(len(p)) if weights is None else weights[order]
    right, taken = np.cumsum(w * p), np.cumsum(w)
    told = p.astype(np.float32)
    lower = told[1:] < np.nextafter(told[:-1], np.float32(0))  # with room for a number between
    last = np.append(lower, True) & (
        taken > 0
    )  # only where the next item scores lower can a line be drawn
    if aim.name == "f1":
        good = 2 * right / np.maximum(taken + right[-1], 1e-300)
        place = int(np.where(last, good, -1.0).argmax())
    elif aim.name == "precision":
        enough = last & (right >= aim.least * taken)
        if not enough.any():
            return aim.least
        place = int(np.flatnonzero(enough)[-1])
    else:
        enough = last & (right >= aim.least * right[-1] * (1 - 1e-12))
        place = int(np.flatnonzero(enough)[0])
    below = told[place + 1] if place + 1 < len(p) else np.float32(0)
    return float((told[place] + below) / 2)


def thresholds(probabilities: Array, aim: Aim, weights: Array | None = None) -> Array:
    """The same for every class."""
    return np.array([threshold(column, aim, weights) for column in probabilities.T])
