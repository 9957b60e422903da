"""How well confidences tell true positives from true negatives among labels that training calls unknown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spml.analysis.unknown import Unknown

BINS = 50


@dataclass(frozen=True)
class Distinguishability:
    """The two groups of confidences of one run.

    Attributes:
        method: of the run.
        run: its folder's name.
        positives: unknown labels that are positive in truth.
        negatives: those that are negative.
        epochs: 0 is before training.
        distances: Wasserstein-1 between the two samples of confidences, after each epoch.
        best_epoch: the one that the run chose, of the histograms.
        positive_counts: positives in equal bins of confidence from 0 to 1.
        negative_counts: likewise.
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
        """At the best epoch."""
        return self.distances[self.epochs.index(self.best_epoch)]


def distinguishability(unknown: Unknown) -> Distinguishability:
    """Distances in every stored epoch, and histograms at the best."""
    from scipy.stats import wasserstein_distance

    positive, best = unknown.positive, int(unknown.result["best_epoch"])
    distances = []
    for epoch in unknown.epochs:
        confidence = unknown.at(epoch)
        distances.append(float(wasserstein_distance(confidence[positive], confidence[~positive])))
    confidence = unknown.at(best)
    counts = [
        np.histogram(confidence[kind], BINS, (0, 1))[0].tolist() for kind in (positive, ~positive)
    ]
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
