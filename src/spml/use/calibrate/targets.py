"""The threshold of a class that meets a target, from calibrated probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.errors import UserError

Array = npt.NDArray[np.float64]
NAMES = ("f1", "precision", "recall")


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
    items that float32 merges are tagged together.

    Args:
        probabilities: calibrated, of one class.
        target: what the threshold is chosen for.
        weights: how often each item counts.
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
