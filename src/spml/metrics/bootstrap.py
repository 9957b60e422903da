"""Uncertainty of a difference in mAP, by resampling the test images alike for every run.

A run stores its mAP in each resample. Two runs on the same images are compared resample by
resample, without their scores: hard images are hard for both, and their effect cancels.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

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
class Measured:
    """The test mAP of a run, and in each resample of the test images.

    Runs with the same `draw` have the same observed labels, those with the same `seed` the same
    training seed.
    """

    draw: Hashable
    seed: Hashable
    figure: float
    maps: Sequence[float] | Floats


@dataclass(frozen=True)
class Comparison:
    """The difference of two rows, in points of mAP.

    Attributes:
        difference: mean difference over the pairs of runs.
        low: low end of the 95 % interval.
        high: high end of that interval.
        p: of a t-test that the difference is 0; None for one pair.
        seeds: number of pairs of runs.
        draws: number of draws of the observed labels among them.
    """

    difference: float
    low: float
    high: float
    p: float | None
    seeds: int
    draws: int = 1

    @property
    def sign(self) -> int:
        """1 or -1 if the difference counts: several pairs, and an interval without 0; else 0."""
        if self.p is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


def compare(own: Sequence[Measured], others: Sequence[Measured]) -> Comparison:
    """Compare two rows over test images, training seeds and draws of the observed labels.

    Runs with the same draw and seed are paired; if there are none, runs in the order given. The
    variance of the mean difference is the sum of three: that of the test images, by resampling
    them, and those between the means of the seeds and between the means of the draws. The interval
    is Student's, with Satterthwaite's degrees of freedom. The variance of images is the
    covariance between runs (Obuchowski and Rockette, 1995): what resampling adds to one run alone
    is part of the difference between seeds. No interval is narrower than that of the
    resampled means. With a single pair it covers the test images alone.
    """
    pairs = _pairs(own, others)
    number = min(len(run.maps) for pair in pairs for run in pair)
    gaps = np.array([a.figure - b.figure for a, b in pairs])
    drawn = np.array([np.subtract(a.maps[:number], b.maps[:number]) for a, b in pairs], float)
    among = [_between(gaps, [key(a) for a, _ in pairs]) for key in (_seed, _draw)]
    spread = sum(variance for variance, _ in among)
    resampled = float(drawn.mean(axis=0).var(ddof=1)) if number > 1 else 0.0
    variance = max(_covariance(drawn) + spread, resampled)
    unsure = sum(part**2 / freedom for part, freedom in among if freedom)
    freedom = variance**2 / unsure if unsure else np.inf
    difference, error = float(gaps.mean()), float(np.sqrt(variance))
    reach = float(stdtrit(freedom, 0.975)) * error
    p = 2 * float(stdtr(freedom, -abs(difference) / error)) if error else float(difference == 0)
    return Comparison(
        difference,
        difference - reach,
        difference + reach,
        p if len(pairs) > 1 else None,
        len(pairs),
        len({run.draw for run, _ in pairs}),
    )


def _seed(run: Measured) -> Hashable:
    return run.seed


def _draw(run: Measured) -> Hashable:
    return run.draw


def _pairs(own: Sequence[Measured], others: Sequence[Measured]) -> list[tuple[Measured, Measured]]:
    rivals = {(run.draw, run.seed): run for run in others}
    pairs = [(run, rivals[run.draw, run.seed]) for run in own if (run.draw, run.seed) in rivals]
    return pairs or list(zip(own, others, strict=False))


def _between(gaps: Floats, levels: Sequence[Hashable]) -> tuple[float, int]:
    """Variance of the mean that the difference between levels gives, and its degrees of freedom."""
    groups: dict[Hashable, list[float]] = {}
    for gap, level in zip(gaps, levels, strict=True):
        groups.setdefault(level, []).append(float(gap))
    means = [float(np.mean(group)) for group in groups.values()]
    if len(means) < 2:
        return 0.0, 0
    return float(np.var(means, ddof=1)) / len(means), len(means) - 1


def _covariance(drawn: Floats) -> float:
    """Mean covariance of two runs over resamples of the images; of one run, its variance."""
    number, resamples = drawn.shape
    if resamples < 2:
        return 0.0
    covariances = np.atleast_2d(np.cov(drawn))
    if number == 1:
        return float(covariances[0, 0])
    every = float(covariances.sum() - np.trace(covariances)) / (number * (number - 1))
    return every if every > 0 else 0.0
