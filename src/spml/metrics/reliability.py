"""Reliability of probabilities: how far they are from the observed shares."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.scores import Values, scores_and_labels, sigmoid

Array = npt.NDArray[np.float64]
BINS = 15


@dataclass(frozen=True, eq=False)
class Reliability:
    """Entries in bins of equal width of probability, without empty bins.

    Attributes:
        probability: mean probability of each bin.
        share: share of positives in each bin.
        entries: number of entries in each bin.
    """

    probability: Array
    share: Array
    entries: npt.NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: mean of |probability - share|, weighted by entries."""
        return float(np.average(np.abs(self.probability - self.share), weights=self.entries))


def reliability(
    probabilities: npt.ArrayLike, outcomes: npt.ArrayLike, bins: int = BINS
) -> Reliability:
    """Bin probabilities with their outcomes.

    Args:
        probabilities: from 0 to 1, of any shape.
        outcomes: 1 or 0, or a chance between, in the same shape.
        bins: number of bins of equal width.
    """
    p, y = np.asarray(probabilities, np.float64).ravel(), np.asarray(outcomes, np.float64).ravel()
    bin_of = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    filled = count > 0
    sums = [np.bincount(bin_of, values, minlength=bins)[filled] for values in (p, y)]
    return Reliability(sums[0] / count[filled], sums[1] / count[filled], count[filled])


def calibration_error(logits: Values, truth: Values, bins: int = BINS) -> float:
    """Expected calibration error of the sigmoid of logits over all known entries, in [0, 1].

    Args:
        logits: (items, classes).
        truth: 1 positive, -1 negative, 0 unknown: left out.
        bins: number of bins of equal width.
    """
    scores, labels = scores_and_labels(logits, truth)
    known = labels != 0
    if not known.any():
        raise UserError("there are no known labels to compare probabilities with")
    return reliability(sigmoid(scores[known]), labels[known] == 1, bins).error
