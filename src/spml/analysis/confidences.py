"""Confidences of the validation labels that the paper analyses: all but the drawn positives.

Assumption 1 about k_hat: before training the share of positives is the same at every confidence.
Assumption 2: after training it rises with confidence. By Remark 2 it is (1 - a) p / (1 - a p) if a
positive is observed with probability a.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import chi2_contingency, spearmanr, wasserstein_distance
from sklearn.metrics import roc_auc_score

from spml.data.benchmarks import paper_counts
from spml.errors import UserError
from spml.losses.components import Context, Posterior
from spml.metrics.scores import sigmoid
from spml.runs.names import LABELS, OBSERVED
from spml.runs.run import Run

DISTANCE_BINS, BINS = 50, 100
FEWEST = 10  # smallest number of labels for a bin to count as a point
ENOUGH = 5  # smallest expected count of a bin in the chi-squared test; rarer bins are merged
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Unknown:
    """Confidences of the unknown validation labels of a run.

    Attributes:
        mask: The unknown labels among validation rows by classes.
        positive: Which unknown labels are positive in the complete labels.
        seen: Number of validation labels that were drawn, all positive.
    """

    run: Run
    mask: Flags
    positive: Flags
    seen: int

    @property
    def result(self) -> dict[str, Any]:
        """Result of the run."""
        return self.run.require_result()

    @property
    def observed_share(self) -> float:
        """Probability that a positive is observed: 1 / (positives per image).

        The paper's number of positives is used for its data sets; it is counted for others.
        """
        paper = paper_counts(str(self.run.config.get("data")))
        if paper is not None:
            return 1 / paper.positives
        return self.seen / (self.seen + int(self.positive.sum()))

    @property
    def epochs(self) -> list[int]:
        """Epochs of the run; 0 is before training."""
        return [record["epoch"] for record in self.run.history]

    def at(self, epoch: int) -> Floats:
        """Return the confidences after an epoch."""
        path, logits = self.run.scores_file("val", epoch), self.run.scores("val", epoch)
        if logits is None:
            raise UserError(f"{path} is not there: the run's scores of epoch {epoch} are needed")
        confidence = sigmoid(logits[self.mask])
        if not np.isfinite(confidence).all():
            raise UserError(f"{path} holds scores that are not numbers: the run has diverged")
        return confidence


def unknown_labels(folder: Path) -> Unknown:
    """Read the unknown validation labels of a finished run that has complete validation labels."""
    run = Run(folder)
    truth, stored = run.val_truth, run.observed
    if truth is None or stored is None:
        raise UserError(f"{folder} has no {LABELS} and {OBSERVED} with validation labels")
    observed = stored.val
    mask = observed == 0
    if set(truth[mask].tolist()) != {1, -1}:
        raise UserError(
            f"{folder}: the study needs complete validation labels, with positives that were not "
            "drawn"
        )
    run.require_result()
    return Unknown(run, mask, truth[mask] == 1, int((observed == 1).sum()))


@dataclass(frozen=True)
class Distinguishability:
    """How far the confidences of true positives and true negatives of a run are apart.

    Attributes:
        distances: Wasserstein-1 distance between the two samples of confidences, by epoch.
        positive_counts, negative_counts: labels in equal bins of confidence at the best epoch.
    """

    method: str
    run: str
    positives: int
    negatives: int
    epochs: list[int]
    distances: list[float]
    best_epoch: int
    positive_counts: list[int]
    negative_counts: list[int]

    @property
    def best_distance(self) -> float:
        """The distance at the best epoch."""
        return self.distances[self.epochs.index(self.best_epoch)]


def distinguishability(unknown: Unknown) -> Distinguishability:
    """Compute the distance of every stored epoch and the histograms of the best one."""
    best, kinds = int(unknown.result["best_epoch"]), (unknown.positive, ~unknown.positive)
    samples = [[p[kind] for kind in kinds] for p in map(unknown.at, unknown.epochs)]
    p = unknown.at(best)
    counts = [np.histogram(p[kind], DISTANCE_BINS, (0, 1))[0].tolist() for kind in kinds]
    return Distinguishability(
        method=str(unknown.result["method"]),
        run=unknown.run.folder.name,
        positives=int(kinds[0].sum()),
        negatives=int(kinds[1].sum()),
        epochs=unknown.epochs,
        distances=[float(wasserstein_distance(*pair)) for pair in samples],
        best_epoch=best,
        positive_counts=counts[0],
        negative_counts=counts[1],
    )


@dataclass(frozen=True)
class Ratios:
    """FN / (FN + TN) in equal bins of confidence.

    Attributes:
        confidence: mean confidence of each bin with labels.
        labels, positives: numbers of unknown labels (FN + TN) and of true positives (FN) of each.
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


def ratios(confidence: Floats, positive: Flags, a: float, epoch: int) -> Ratios:
    """Compute the ratios of one epoch and the statistics that test the assumptions."""
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
    at = torch.from_numpy(np.asarray(p, np.float64))
    return np.asarray(Posterior(a)(at, Context(at, torch.zeros(at.shape))), np.float64)


def constant_p(positives: Counts, labels: Counts) -> float:
    """Return p of a chi-squared test that all bins have one share; 1 with fewer than two bins."""
    enough = labels * positives.sum() / labels.sum() >= ENOUGH
    rare = [[positives[~enough].sum()], [labels[~enough].sum()]]
    hits = np.concatenate([positives[enough], rare[0]])
    total = np.concatenate([labels[enough], rare[1]])
    hits, total = hits[total > 0], total[total > 0]
    if len(total) < 2 or not 0 < hits.sum() < total.sum():
        return 1.0
    return float(chi2_contingency(np.stack([hits, total - hits]), correction=False).pvalue)


def wilson(positives: Counts, labels: Counts, z: float = 1.96) -> tuple[Floats, Floats]:
    """Return the Wilson interval of a share."""
    share = positives / labels
    middle = (share + z**2 / (2 * labels)) / (1 + z**2 / labels)
    half = z / (1 + z**2 / labels) * np.sqrt(share * (1 - share) / labels + z**2 / (4 * labels**2))
    return middle - half, middle + half
