"""How well confidences separate true positives from true negatives among unknown labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spml.analysis.unknown import Unknown

BINS = 50


@dataclass(frozen=True)
class Distinguishability:
    """The confidences of unknown labels of one run that are truly positive, and truly negative.

    Attributes:
        positives, negatives: number of labels in the groups.
        epochs: epochs with stored scores; 0 is before training.
        distances: Wasserstein-1 distance between the two samples of confidences, by epoch.
        best_epoch: the epoch that the run chose; the histograms show it.
        positive_counts, negative_counts: labels in equal bins of confidence from 0 to 1.
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
    from scipy.stats import wasserstein_distance

    positive, best = unknown.positive, int(unknown.result["best_epoch"])
    distances = []
    for epoch in unknown.epochs:
        p = unknown.at(epoch)
        distances.append(float(wasserstein_distance(p[positive], p[~positive])))
    p = unknown.at(best)
    counts = [np.histogram(p[kind], BINS, (0, 1))[0].tolist() for kind in (positive, ~positive)]
    return Distinguishability(
        method=str(unknown.result["method"]),
        run=unknown.run.folder.name,
        positives=int(positive.sum()),
        negatives=int((~positive).sum()),
        epochs=unknown.epochs,
        distances=distances,
        best_epoch=best,
        positive_counts=counts[0],
        negative_counts=counts[1],
    )
