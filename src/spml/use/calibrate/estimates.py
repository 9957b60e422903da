"""mAP, precision, recall and F1 from complete labels or from chances of unknown labels.

If each label has a chance w, the expected number of right tags among items is the sum of w. Chances
come from complete labels (0 or 1), or from the draw of the observed positives
(`spml.metrics.draw`), which reads no other label. Intervals come from a bootstrap over items; with
observed labels each resample moves the fit by one Newton step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.metrics.draw import DrawFit, draw, fit_draw
from spml.metrics.scores import Labels, Values, ratio, scores_and_labels

Array = npt.NDArray[np.float64]
Figures = dict[str, Array]

RESAMPLES = 200
FEWER = 50  # resamples of more entries than MANY
MANY = 100_000
CENTRAL = (2.5, 97.5)  # percentiles of an interval


@dataclass(frozen=True, eq=False)
class Evidence:
    """Logits of items with the chances of their labels; with observed labels also their fit."""

    logits: Array  # the model's own, (items, classes)
    chances: Array  # of each label to be positive
    observed: Labels | None = None
    fit: DrawFit | None = None  # of the draw
    fixed_positives: bool = False  # the user has set the mean number of positives of an item

    @classmethod
    def of_complete(cls, logits: Values, truth: Values) -> Evidence:
        """From labels 1 and -1."""
        scores, labels = scores_and_labels(logits, truth)
        return cls(scores.astype(np.float64), (labels == 1).astype(np.float64))

    @classmethod
    def of_observed(
        cls, logits: Values, observed: Values, positives: float | None = None
    ) -> Evidence:
        """From labels 1, 0 (unknown) and -1; items without a positive are left out.

        `positives` is the mean number of positives of an item, if it is known.
        """
        scores, labels = scores_and_labels(logits, observed, "observed")
        fit = fit_draw(scores, labels, positives=positives)
        z, known = scores[fit.rows].astype(np.float64), labels[fit.rows]
        labels_drawn = draw(fit.logits(z), known)
        chances = labels_drawn.seen if positives is None else labels_drawn.present
        return cls(z, chances, known, fit, positives is not None)

    def resamples(
        self, seed: int, advance: Callable[[int, int], None] | None = None
    ) -> Iterator[tuple[Array, Array]]:
        """Yield the count of each item and the chances of its labels in each resample."""
        rng = np.random.default_rng(seed)
        items, times = len(self.logits), RESAMPLES if self.logits.size <= MANY else FEWER
        for time in range(times):
            counts = rng.multinomial(items, np.full(items, 1 / items)).astype(np.float64)
            yield counts, self.chances if self.fit is None else self._refitted(counts - 1)
            if advance is not None:
                advance(time + 1, times)

    def _refitted(self, change: Array) -> Array:
        assert self.fit is not None and self.observed is not None
        step = np.clip(np.linalg.solve(self.fit.information, self.fit.scores.T @ change), -2, 2)
        slope, shifts = self.fit.slope * np.exp(step[0]), self.fit.shifts + step[1] + step[2:]
        moved = draw(slope * self.logits + shifts, self.observed)
        return moved.present if self.fixed_positives else moved.seen


class Measure:
    """Metrics of fixed tags and a fixed ranking by logits, for any chances of the labels.

    Without tags there are metrics of the ranking alone.
    """

    def __init__(self, logits: Array, tagged: npt.NDArray[np.bool_] | None) -> None:
        self.tagged = tagged
        self.order = np.argsort(-logits, axis=0, kind="stable")
        ranked = np.take_along_axis(logits, self.order, axis=0)
        places = np.broadcast_to(np.arange(len(logits))[:, None], logits.shape).copy()
        places[:-1][ranked[:-1] == ranked[1:]] = len(logits)
        # items with equal scores share one threshold
        self.ends = np.minimum.accumulate(places[::-1], axis=0)[::-1]

    def __call__(self, chances: Array, counts: Array) -> Figures:
        """Return prior and AP of each class and mAP; with tags also precision, recall and F1."""
        right = chances * counts[:, None]
        total = right.sum(axis=0)
        ranked = np.take_along_axis(right, self.order, axis=0)
        sums = np.take_along_axis(np.cumsum(ranked, axis=0), self.ends, axis=0)
        reached = np.maximum(
            np.take_along_axis(np.cumsum(counts[self.order], axis=0), self.ends, axis=0), 1e-300
        )
        # an item that counts as a positive is one with certainty
        own = 1 - np.take_along_axis(chances, self.order, axis=0)
        precision = np.minimum((sums + own) / reached, 1.0)
        ap = ratio((ranked * precision).sum(axis=0), total)
        figures = {"prior": total / counts.sum(), "ap": ap, "map": np.array(ap.mean())}
        figures["positives_per_item"] = np.array(total.sum() / counts.sum())
        if self.tagged is None:
            return figures
        hits = (right * self.tagged).sum(axis=0)
        chosen = (counts[:, None] * self.tagged).sum(axis=0)
        tags = _of_tags(hits, chosen, total)
        macro = {f"macro_{name}": values.mean() for name, values in tags.items()}
        micro = _of_tags(hits.sum(), chosen.sum(), total.sum())
        return {**figures, **tags, **macro, **{f"micro_{name}": v for name, v in micro.items()}}


def _of_tags(hits: Array, chosen: Array, total: Array) -> Figures:
    """Precision, recall and F1 from numbers of right tags, of tags, and of positives."""
    f1 = ratio(2 * hits, chosen + total)
    return {"precision": ratio(hits, chosen), "recall": ratio(hits, total), "f1": f1}


def estimate(
    logits: Values,
    observed: Values,
    tagged: npt.NDArray[np.bool_],
) -> dict[str, tuple[float, float, float]]:
    """Estimate mAP, and precision, recall and F1 of tags, from observed labels alone.

    Each figure is (value, low, high), in [0, 1]. The items were not used in training.
    """
    evidence = Evidence.of_observed(logits, observed)
    assert evidence.fit is not None
    measure = Measure(evidence.logits, tagged[evidence.fit.rows])
    value = measure(evidence.chances, np.ones(len(evidence.logits)))
    drawn = [measure(chances, counts) for counts, chances in evidence.resamples(seed=0)]
    bounds = intervals(value, drawn)
    return {
        name: (float(value[name]), float(low), float(high))
        for name, (low, high) in bounds.items()
        if value[name].ndim == 0
    }


def intervals(value: Figures, drawn: list[Figures]) -> dict[str, tuple[Array, Array]]:
    """Low and high end of every figure over resamples, widened to include the value itself."""
    ends = {}
    for name, middle in value.items():
        low, high = np.percentile([figures[name] for figures in drawn], CENTRAL, axis=0)
        ends[name] = np.minimum(low, middle), np.maximum(high, middle)
    return ends
