"""Precision, recall and F1 of tags, or of logits and their thresholds."""

from dataclasses import dataclass

import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.items import top_k as highest
from spml.metrics.scores import (
    Labels,
    Mask,
    Values,
    precision_recall_f1,
    ratio,
    reaches,
    scores_and_labels,
)


@dataclass(frozen=True)
class ThresholdMetrics:
    """Metrics of predicted tags, each in [0, 1], under their names in the literature.

    Attributes:
        CP: precision of each class, averaged over classes.
        CR: recall of each class, averaged over classes.
        CF1: harmonic mean of CP and CR.
        macro_f1: F1 of each class, averaged over classes.
        OP: precision over all entries together.
        OR: recall over all entries together.
        OF1: harmonic mean of OP and OR.
    """

    CP: float
    CR: float
    CF1: float
    macro_f1: float
    OP: float
    OR: float
    OF1: float


def threshold_metrics(
    logits: Values, truth: Values, threshold: npt.ArrayLike = 0.5, *, top_k: int | None = None
) -> ThresholdMetrics:
    """Precision, recall and F1 of the entries whose probability reaches the threshold.

    A ratio with denominator 0 is 0: a class that is never predicted has precision 0.

    Args:
        logits: scores of (items, classes).
        truth: 1 positive, -1 negative, 0 unknown: left out.
        threshold: probability at which a tag is predicted, one for all classes or one per class.
        top_k: predict this many of the highest known entries of each item, without a threshold.
    """
    scores, labels = scores_and_labels(logits, truth)
    if not scores.shape[1]:
        raise UserError("there are no classes to average over")
    predicted = reaches(scores, threshold) if top_k is None else highest(scores, labels, top_k)
    return tag_metrics(predicted, labels)


def tag_metrics(tags: Mask, labels: Labels) -> ThresholdMetrics:
    """Precision, recall and F1 of predicted tags; labels are 1, -1 and 0 (left out)."""
    positive = labels == 1
    hits = (tags & positive).sum(axis=0)
    chosen = (tags & (labels != 0)).sum(axis=0)
    actual = positive.sum(axis=0)
    precision, recall, f1 = precision_recall_f1(hits, chosen, actual)
    overall = float(ratio(hits.sum(), chosen.sum())), float(ratio(hits.sum(), actual.sum()))
    return ThresholdMetrics(
        CP=float(precision.mean()),
        CR=float(recall.mean()),
        CF1=_harmonic(float(precision.mean()), float(recall.mean())),
        macro_f1=float(f1.mean()),
        OP=overall[0],
        OR=overall[1],
        OF1=_harmonic(*overall),
    )


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0
