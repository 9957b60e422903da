"""A check of the paper's two assumptions about k_hat: the share of positives by confidence.

Assumption 1: before training the share is the same at every confidence. Assumption 2: after
training it rises with confidence. By Remark 2 it is (1 - a) p / (1 - a p) if a positive is observed
with probability a.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.analysis.unknown import Unknown

BINS = 100
FEWEST = 10  # smallest number of labels for a bin to count as a point
ENOUGH = 5  # smallest expected count of a bin in the chi-squared test; rarer bins are merged
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ratios:
    """FN / (FN + TN) in equal bins of confidence.

    Attributes:
        epoch: 0 is before training.
        confidence: mean confidence of each bin with labels.
        labels: number of unknown labels in each bin: FN + TN.
        positives: number of true positives: FN.
        expected: k_hat of Eq. (kx) at that confidence.
        share: FN / (FN + TN) over all bins.
        higher: probability that a positive has more confidence than a negative (AUC).
        constant_p: p-value of a chi-squared test that all bins have the same share.
        rank_correlation: Spearman's correlation of confidence and ratio, over bins with enough
            labels.
        distance: mean of |ratio - k_hat| over labels.
        within: share of the bins with enough labels whose 95 % interval (Wilson) contains k_hat.
    """

    epoch: int
    confidence: list[float]
    labels: list[int]
    positives: list[int]
    expected: list[float]
    share: float
    higher: float
    constant_p: float
    rank_correlation: float | None
    distance: float
    within: float


@dataclass(frozen=True)
class Assumptions:
    """The ratios of one run before and after training; a positive is observed with chance a."""

    method: str
    run: str
    a: float
    before: Ratios
    after: Ratios


def assumptions(unknown: Unknown, a: float) -> Assumptions:
    """Compute the ratios before the first and after the last epoch."""
    first, last = unknown.epochs[0], unknown.epochs[-1]
    ends = [ratios(unknown.at(epoch), unknown.positive, a, epoch) for epoch in (first, last)]
    return Assumptions(str(unknown.result["method"]), unknown.run.folder.name, a, *ends)


def ratios(confidence: Floats, positive: npt.NDArray[np.bool_], a: float, epoch: int) -> Ratios:
    """Compute the ratios of one epoch and the statistics that test the assumptions."""
    from scipy.stats import spearmanr
    from sklearn.metrics import roc_auc_score

    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    labels = np.bincount(place, minlength=BINS)
    there = labels > 0
    labels = labels[there]
    positives = np.bincount(place[positive], minlength=BINS)[there]
    mean = np.bincount(place, confidence, BINS)[there] / labels
    ratio, expected = positives / labels, posterior(mean, a)
    counted = labels >= FEWEST
    correlation = None
    if counted.sum() > 2 and np.ptp(ratio[counted]) > 0:
        correlation = float(spearmanr(mean[counted], ratio[counted]).statistic)
    low, high = wilson(positives[counted], labels[counted])
    inside = (low <= expected[counted]) & (expected[counted] <= high)
    return Ratios(
        epoch=epoch,
        confidence=mean.tolist(),
        labels=labels.tolist(),
        positives=positives.tolist(),
        expected=expected.tolist(),
        share=float(positive.mean()),
        higher=float(roc_auc_score(positive, confidence)),
        constant_p=constant_p(positives, labels),
        rank_correlation=correlation,
        distance=float(np.average(np.abs(ratio - expected), weights=labels)),
        within=float(inside.mean()) if counted.any() else 0.0,
    )


def posterior(p: Floats, a: float) -> Floats:
    """Return k_hat of Eq. (kx), computed by the library's component."""
    import torch

    from spml.losses.components import Context, Posterior

    at = torch.from_numpy(np.asarray(p, np.float64))
    return np.asarray(Posterior(a)(at, Context(at, torch.zeros(at.shape))), np.float64)


def constant_p(positives: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> float:
    """Return p of a chi-squared test that all bins have one share; 1 with fewer than two bins."""
    from scipy.stats import chi2_contingency

    enough = labels * positives.sum() / labels.sum() >= ENOUGH
    rare = [[positives[~enough].sum()], [labels[~enough].sum()]]
    hits = np.concatenate([positives[enough], rare[0]])
    total = np.concatenate([labels[enough], rare[1]])
    hits, total = hits[total > 0], total[total > 0]
    if len(total) < 2 or not 0 < hits.sum() < total.sum():
        return 1.0
    return float(chi2_contingency(np.stack([hits, total - hits]), correction=False).pvalue)


def wilson(
    positives: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], z: float = 1.96
) -> tuple[Floats, Floats]:
    """Return the Wilson interval of a share."""
    share = positives / labels
    middle = (share + z**2 / (2 * labels)) / (1 + z**2 / labels)
    half = z / (1 + z**2 / labels) * np.sqrt(share * (1 - share) / labels + z**2 / (4 * labels**2))
    return middle - half, middle + half
