"""How far probabilities are from the shares that come true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.inputs import Values, scores_and_labels, sigmoid

Array = npt.NDArray[np.float64]
BINS = 15


@dataclass(frozen=True, eq=False)
class Reliability:
    """Entries in bins of equal width of their probability, empty bins left out.

    Attributes:
        probability: mean of each bin.
        share: of each bin that came true.
        entries: in each bin.
    """

    probability: Array
    share: Array
    entries: npt.NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: the mean distance of the two, weighted by entries."""
        return float(np.average(np.abs(self.probability - self.share), weights=self.entries))


def reliability(
    probabilities: npt.ArrayLike, outcomes: npt.ArrayLike, bins: int = BINS
) -> Reliability:
    """Probabilities against what came true.

    Args:
        probabilities: from 0 to 1, of any shape.
        outcomes: of the same shape: 1 or 0, or a chance between.
        bins: of equal width.
    """
    p, y = np.asarray(probabilities, np.float64).ravel(), np.asarray(outcomes, np.float64).ravel()
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    kept = count > 0
    sums = [np.bincount(place, values, minlength=bins)[kept] for values in (p, y)]
    return Reliability(sums[0] / count[kept], sums[1] / count[kept], count[kept])


def calibration_error(logits: Values, truth: Values, bins: int = BINS) -> float:
    """Expected calibration error of the sigmoid of logits over all known entries, in [0, 1].

    Args:
        logits: (items, classes).
        truth: 1 positive, -1 negative, 0 unknown: left out.
        bins: of equal width.
    """
    scores, labels = scores_and_labels(logits, truth)
    known = labels != 0
    if not known.any():
        raise UserError("there are no known labels to hold probabilities against")
    return reliability(sigmoid(scores[known]), labels[known] == 1, bins).error
