"""Uncertainty of a difference in mAP, by resampling the test images alike for every run.

A run stores its mAP in each resample. Two runs on the same images are compared resample by
resample, without their scores: hard images are hard for both, and their effect cancels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.metrics.scores import Values, scores_and_labels

RESAMPLES = 1000
SEED = 1200
BLOCK = 2**24  # entries of resampled weights processed at once

Floats = npt.NDArray[np.float64]


def resampled_map(
    logits: Values, truth: Values, resamples: int = RESAMPLES, seed: int = SEED
) -> Floats:
    """mAP in percent in each resample of the items, drawn with replacement.

    A class without positives counts 0. The same seed draws the same items in every run.
    """
    scores, labels = scores_and_labels(logits, truth)
    items, classes = scores.shape
    precisions = [_precision(scores[:, column], labels[:, column]) for column in range(classes)]
    rng = np.random.RandomState(seed)  # its stream is the same in every version of numpy
    parts = []
    step = max(1, BLOCK // max(items, 1))
    for start in range(0, resamples, step):
        drawn = [
            np.bincount(rng.randint(items, size=items), minlength=items)
            for _ in range(start, min(start + step, resamples))
        ]
        weights = np.ascontiguousarray(np.array(drawn).T, dtype=np.float32)
        parts.append(100 * np.mean([precision(weights) for precision in precisions], axis=0))
    return np.concatenate(parts)


def _precision(
    scores: npt.NDArray[np.floating], labels: npt.NDArray[np.int8]
) -> Callable[[npt.NDArray[np.float32]], Floats]:
    """A function from weights (items, resamples) to the average precision in each resample.

    Items are sorted by falling score once, and grouped by the scores of the positives.
    """
    known = np.flatnonzero(labels)
    order = known[np.argsort(-scores[known], kind="stable")]
    ranked, positive = -scores[order], labels[order] == 1
    levels, firsts = np.unique(ranked[positive], return_index=True)
    if not len(levels):
        return lambda weights: np.zeros(weights.shape[1])
    ends = np.searchsorted(ranked, levels, side="right")
    starts = np.concatenate([[0], ends[:-1]])
    counted, positives = order[: ends[-1]], order[positive]

    def precision(weights: npt.NDArray[np.float32]) -> Floats:
        reached = np.add.reduceat(weights[counted], starts, axis=0).cumsum(axis=0)
        hits = np.add.reduceat(weights[positives], firsts, axis=0)
        ranked = hits.cumsum(axis=0)
        share = np.divide(ranked, reached, out=np.zeros_like(ranked), where=reached > 0)
        total = ranked[-1].astype(np.float64)
        summed = (hits * share).sum(axis=0, dtype=np.float64)
        values: Floats = np.divide(summed, total, out=np.zeros_like(total), where=total > 0)
        return values

    return precision


@dataclass(frozen=True)
class Comparison:
    """The difference of two rows, in points of mAP.

    Attributes:
        difference: difference of the means over the common seeds.
        low: low end of the interval with 95 % of the resampled differences.
        high: high end of that interval.
        p: twice the share of resamples in which the difference is 0 or has the other sign.
        seeds: number of common seeds.
    """

    difference: float
    low: float
    high: float
    p: float
    seeds: int


def compare(
    own: Sequence[Sequence[float]],
    others: Sequence[Sequence[float]],
    figures: Sequence[float],
    rivals: Sequence[float],
) -> Comparison:
    """Compare two rows, paired over images and seeds.

    The interval covers the uncertainty of the test images, not of training.

    Args:
        own: resampled mAPs, a list for each seed; `others` are those of the other row.
        figures: mAP of each seed; `rivals` are those of the other row.
    """
    differences = np.mean(np.asarray(own, float) - np.asarray(others, float), axis=0)
    low, high = np.quantile(differences, (0.025, 0.975))
    fewer = min((differences <= 0).sum(), (differences >= 0).sum())
    p = min(1.0, 2 * (1 + int(fewer)) / (1 + len(differences)))
    difference = float(np.mean(figures) - np.mean(rivals))
    return Comparison(difference, float(low), float(high), p, len(figures))
