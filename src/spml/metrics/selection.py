"""Compare models by observed positives alone.

Average precision is the mean, over the positives of a class, of the precision among the items that
score at least as high. If item i has n_i positives and one of them is observed at random, an
observed positive stands for n_i positives: weighted by n_i, observed positives count the true ones.
Their weighted number among the items that score at least s, divided by the number of these items,
is then the precision at s, which cannot exceed 1. docs/selection.md compares this criterion with
others, and says how well it orders models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.draw import draw, fit_draw
from spml.metrics.scores import PerClass, Values, scores_and_labels

POSITIVES = 2.0  # per item, if their number is not estimated; docs/selection.md
RESAMPLES = 100
FITTED = 4000  # items that the number of positives is estimated from
NO_POSITIVE = "no class has an observed positive to select by; give labels with some"


@dataclass(frozen=True, eq=False)
class ClassPositives:
    """The observed positives of a class, from the highest score to the lowest.

    Attributes:
        order: number of each positive among those of the class, counted in the order of the items.
        counts: how many positives each stands for.
        reached: number of items that score at least as high.
        last: rank of the last positive with an equal score: they share a threshold.
    """

    order: npt.NDArray[np.int64]
    counts: PerClass
    reached: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]

    def precision(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the mean precision at the positives for each resample.

        Args:
            times: how often each positive counts, in the order of the items: (resamples, P).
        """
        counts = times[:, self.order] * self.counts
        hits = np.cumsum(counts, axis=1)[:, self.last]
        total = np.maximum(counts.sum(axis=1), 1e-300)
        mean = (counts * np.minimum(hits / self.reached, 1.0)).sum(axis=1) / total
        return np.asarray(mean, np.float64)


@dataclass(frozen=True, eq=False)
class Precisions:
    """The observed positives of all classes that have one, ranked by a model."""

    classes: list[ClassPositives]

    @property
    def score(self) -> float:
        """Mean over classes of the estimated average precision, in [0, 1]."""
        whole = [one.precision(np.ones((1, len(one.order)))) for one in self.classes]
        return float(np.mean(whole))

    def lead(self, other: Self) -> tuple[float, float]:
        """Return how much higher this score is than another model's, and its standard error.

        The error is that of a bootstrap over the observed positives of each class; that of
        training with another seed is not in it.
        """
        random = np.random.default_rng(0)
        drawn = np.zeros(RESAMPLES)
        for ours, theirs in zip(self.classes, other.classes, strict=True):
            size = len(ours.order)
            times = random.multinomial(size, np.full(size, 1 / size), RESAMPLES).astype(np.float64)
            drawn += ours.precision(times) - theirs.precision(times)
        return self.score - other.score, float(np.std(drawn / len(self.classes)))


def precisions(logits: Values, observed: Values, counts: npt.ArrayLike = POSITIVES) -> Precisions:
    """Rank the observed positives of each class.

    Args:
        logits: scores of (items, classes) of items that were not used in training.
        observed: 1 known positive; 0 (unknown) and -1 (known negative) are both the rest.
        counts: number of positives of each item, or one number for all.
    """
    scores, labels = scores_and_labels(logits, observed, "observed")
    numbers = np.broadcast_to(np.asarray(counts, np.float64), len(scores))
    classes = []
    for column in np.flatnonzero((labels == 1).any(axis=0)):
        rows = np.flatnonzero(labels[:, column] == 1)
        order = np.argsort(-scores[rows, column], kind="stable")
        own, every = scores[rows[order], column], np.sort(scores[:, column])
        reached = len(every) - np.searchsorted(every, own)
        last = np.searchsorted(-own, -own, side="right") - 1
        classes.append(ClassPositives(order, numbers[rows[order]], reached, last))
    if not classes:
        raise UserError(NO_POSITIVE)
    return Precisions(classes)


def selection_score(logits: Values, observed: Values, counts: npt.ArrayLike = POSITIVES) -> float:
    """Score a model by observed positives, to compare models on the same items; in [0, 1].

    It needs no complete labels. Its size is not that of mAP unless `counts` are close to the true
    numbers of positives.

    Args:
        logits: scores of (items, classes) of items that were not used in training.
        observed: 1 known positive; 0 (unknown) and -1 (known negative) are both the rest.
        counts: number of positives of each item, or one number for all.
    """
    return precisions(logits, observed, counts).score


def estimated_positives(models: Sequence[Values], observed: Values) -> npt.NDArray[np.float64]:
    """Estimate the number of positives of each item from several models and the observed labels.

    The models' standardised logits are averaged, and the scale is fitted under which the observed
    draws are most likely (`spml.metrics.draw`).

    Args:
        models: logits (items, classes) of each model on the same items.
        observed: 1 known positive, 0 unknown, -1 known negative.
    """
    first, labels = scores_and_labels(models[0], observed, "observed")
    mean = np.zeros(first.shape)
    for logits in models:
        scores = scores_and_labels(logits, observed, "observed")[0].astype(np.float64)
        mean += (scores - scores.mean()) / max(scores.std(), 1e-12) / len(models)
    counts = np.ones(len(labels))
    rows = np.flatnonzero((labels == 1).any(axis=1))
    if labels.shape[1] < 2 or not len(rows):
        return counts
    some = rows[:: -(-len(rows) // FITTED)]
    fit = fit_draw(mean[some], labels[some])
    counts[rows] = np.maximum(draw(fit.logits(mean[rows]), labels[rows]).seen.sum(axis=1), 1.0)
    return counts
