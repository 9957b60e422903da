"""mAP, precision, recall and F1 from complete labels or from chances of unknown labels.

If each label has a chance w, the expected number of right tags among items is the sum of w. Chances
come from complete labels (0 or 1), or from the draw of the observed positives
(`spml.metrics.draw`), which reads no other label. Intervals come from a bootstrap over items; with
observed labels each resample moves the fit by one Newton step, and the intervals are widened by the
error of the model of the draw, as large as `benchmarks/coverage.py` measured it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.metrics.draw import DrawFit, draw, fit_draw
from spml.metrics.scores import Labels, Values, precision_recall_f1, ratio, scores_and_labels

Array = npt.NDArray[np.float64]
Figures = dict[str, Array]

RESAMPLES = 200
FEWER = 50  # resamples of more entries than MANY
MANY = 100_000
CENTRAL = (2.5, 97.5)  # percentiles of an interval
SIDE = 1.96  # standard deviations from the middle to an end of an interval
FEWEST_OTHERS = 0.02
EDGE = 0.005  # shares that are nearer to 0 or 1 count as 0 or 1


@dataclass(frozen=True)
class ModelError:
    """How far estimates from observed labels are off beyond what the choice of items explains.

    Attributes:
        spread: factor on the range of the resamples: with weak scores the number of positives is
            less certain than the model of the draw believes.
        sd: standard deviation of a share, on the scale of logits.
        sd_precision: that of a precision, which depends most on the number of positives.
        sd_recall: that of a recall.
        sd_positives: that of the number of positives of an item, on the scale of `_log_others`.
    """

    spread: float
    sd: float
    sd_precision: float
    sd_recall: float
    sd_positives: float


ESTIMATED = ModelError(2.0, 0.35, 0.45, 0.35, 0.6)
COUNT_SET = ModelError(1.0, 0.2, 0.2, 0.35, 0.0)  # if the user sets the number of positives


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

    @property
    def error(self) -> ModelError | None:
        """The model's error; None with complete labels, which need no model."""
        if self.fit is None:
            return None
        return COUNT_SET if self.fixed_positives else ESTIMATED

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
    shares = precision_recall_f1(hits, chosen, total)
    return dict(zip(("precision", "recall", "f1"), shares, strict=True))


def estimate(
    logits: Values,
    observed: Values,
    tagged: npt.NDArray[np.bool_],
    positives: float | None = None,
) -> dict[str, tuple[float, float, float]]:
    """Estimate mAP, and precision, recall and F1 of tags, from observed labels alone.

    Each figure is (value, low, high), in [0, 1]. The items were not used in training. `positives`
    is the mean number of positives of an item, if it is known.
    """
    evidence = Evidence.of_observed(logits, observed, positives)
    assert evidence.fit is not None
    measure = Measure(evidence.logits, tagged[evidence.fit.rows])
    value = measure(evidence.chances, np.ones(len(evidence.logits)))
    drawn = [measure(chances, counts) for counts, chances in evidence.resamples(seed=0)]
    bounds = intervals(value, drawn, evidence.error)
    return {
        name: (float(value[name]), float(low), float(high))
        for name, (low, high) in bounds.items()
        if value[name].ndim == 0
    }


def intervals(
    value: Figures, drawn: list[Figures], error: ModelError | None = None
) -> dict[str, tuple[Array, Array]]:
    """Low and high end of every figure over resamples, widened to include the value itself.

    Thresholds have no true value, so the model's error does not widen their ends.
    """
    ends = {}
    for name, middle in value.items():
        low, high = np.percentile([figures[name] for figures in drawn], CENTRAL, axis=0)
        low, high = np.minimum(low, middle), np.maximum(high, middle)
        if error is not None and name != "threshold":
            low, high = widened(name, middle, low, high, error)
        ends[name] = low, high
    return ends


def widened(
    name: str, middle: Array, low: Array, high: Array, error: ModelError
) -> tuple[Array, Array]:
    """Widen the range of a figure by the model's error."""
    scale: Callable[[Array], Array] = _logit
    back: Callable[[Array], Array] = _share
    special = {"precision": error.sd_precision, "recall": error.sd_recall}
    sd = special.get(name.rpartition("_")[2], error.sd)
    if name == "positives_per_item":
        scale, back, sd = _log_others, _with_others, error.sd_positives
    center = scale(middle)
    down = np.hypot(error.spread * (center - scale(low)), SIDE * sd)
    up = np.hypot(error.spread * (scale(high) - center), SIDE * sd)
    return np.minimum(back(center - down), low), np.maximum(back(center + up), high)


def _logit(share: Array) -> Array:
    inside = np.clip(share, EDGE, 1 - EDGE)
    return np.asarray(np.log(inside) - np.log1p(-inside), np.float64)


def _share(logit: Array) -> Array:
    share = 1 / (1 + np.exp(-logit))
    return np.where(share < EDGE, 0.0, np.where(share > 1 - EDGE, 1.0, share))


def _log_others(positives: Array) -> Array:
    """Logarithm of the number of positives beside the observed one, finite for none."""
    return np.asarray(np.log(np.maximum(positives - 1, 0) + FEWEST_OTHERS), np.float64)


def _with_others(logarithm: Array) -> Array:
    return np.asarray(1 + np.maximum(np.exp(logarithm) - FEWEST_OTHERS, 0), np.float64)
