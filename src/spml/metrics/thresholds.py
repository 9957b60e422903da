"""Precision, recall and F1 of the tags that a threshold or a fixed number per item gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.inputs import Values, scores_and_labels
from spml.metrics.items import top_k as highest

PerClass = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ThresholdMetrics:
    """Scores of predicted tags, each in [0, 1], under the names the literature gives them.

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

    A ratio with nothing below it is 0, so a class that is never predicted has precision 0.

    Args:
        logits: scores of (items, classes).
        truth: 1 positive, -1 negative, 0 unknown: left out.
        threshold: probability from which a tag is predicted, one for all classes or one per class.
        top_k: predict this many of the highest known entries of each item instead, whatever the threshold.
    """
    scores, labels = scores_and_labels(logits, truth)
    if not scores.shape[1]:
        raise UserError("there are no classes to average over")
    reaches = scores >= _logit(threshold, scores.shape[1])
    predicted = reaches if top_k is None else highest(scores, labels, top_k)
    positive = labels == 1
    hits = (predicted & positive).sum(axis=0)
    chosen = (predicted & (labels != 0)).sum(axis=0)
    actual = positive.sum(axis=0)
    precision, recall = ratio(hits, chosen), ratio(hits, actual)
    overall = float(ratio(hits.sum(), chosen.sum())), float(ratio(hits.sum(), actual.sum()))
    return ThresholdMetrics(
        CP=float(precision.mean()),
        CR=float(recall.mean()),
        CF1=_harmonic(float(precision.mean()), float(recall.mean())),
        macro_f1=float(ratio(2 * hits, chosen + actual).mean()),
        OP=overall[0],
        OR=overall[1],
        OF1=_harmonic(*overall),
    )


def _logit(threshold: npt.ArrayLike, classes: int) -> PerClass:
    """Thresholds on the logits, in float64: a float32 sigmoid cannot tell high scores apart."""
    p = np.asarray(threshold, np.float64)
    if p.shape not in ((), (classes,)):
        raise UserError(
            f"thresholds have shape {p.shape}; give one number or one for each of {classes} classes"
        )
    if not ((p >= 0) & (p <= 1)).all():
        raise UserError(
            f"thresholds are probabilities from 0 to 1; got {p[~((p >= 0) & (p <= 1))].flat[0]}"
        )
    with np.errstate(divide="ignore"):
        return np.broadcast_to(np.log(p) - np.log1p(-p), classes)


def ratio(part: npt.ArrayLike, whole: npt.ArrayLike) -> PerClass:
    """Part / whole, 0 where whole is 0."""
    below = np.asarray(whole, np.float64)
    return np.asarray(
        np.where(below > 0, np.asarray(part) / np.where(below > 0, below, 1), 0.0), np.float64
    )


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0
