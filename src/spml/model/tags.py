"""The rule that turns logits into tags: calibrate, then compare each class with its threshold.

Every command decides tags here, from the model's own logits and in float64, so that all of them agree on an item whose
probability is exactly at its threshold or too close to 1 for float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spml.metrics.scores import HIGHEST, Mask, Values, as_numpy, sigmoid
from spml.metrics.thresholds import reaches
from spml.model.calibration import Knots, Lines

Array = npt.NDArray[np.float64]
SURE = 1 - 2**-25
"""Probabilities from here on are 1 in float32, the precision in which they are written."""


def tagged(logits: Values, thresholds: npt.ArrayLike) -> Mask:
    """Whether each calibrated logit (..., classes) is a tag.

    A threshold above `SURE` counts as `SURE`: a probability that is written as 1 reaches every threshold.
    """
    return reaches(logits, np.minimum(np.asarray(thresholds, np.float64), SURE))


@dataclass(frozen=True, eq=False)
class TagRule:
    """The tag rule of one model.

    Attributes:
        thresholds: one per class, on the calibrated probability.
        knots: of the calibration; None if the model is not calibrated.
    """

    thresholds: Array
    knots: Knots | None = None

    @cached_property
    def _lines(self) -> Lines | None:
        return None if self.knots is None else Lines(self.knots)

    def logits(self, logits: Values) -> Array:
        """Calibrated logits in float64; infinite ones, as half precision stores them, become finite."""
        inside = np.clip(as_numpy(logits).astype(np.float64), -HIGHEST, HIGHEST)
        return inside if self._lines is None else self._lines(inside)

    def probabilities(self, logits: Values) -> Array:
        """Calibrated probabilities in float64."""
        return sigmoid(self.logits(logits))

    def tagged(self, logits: Values) -> Mask:
        """Which classes the model tags, from its own logits (..., classes)."""
        return tagged(self.logits(logits), self.thresholds)
