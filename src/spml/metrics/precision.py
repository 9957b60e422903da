"""Average precision per class and its mean, from complete labels or from single positives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.inputs import Floats, Mask, Values, blocks, scores_and_labels

PerClass = npt.NDArray[np.float64]


def average_precision(logits: Values, truth: Values) -> PerClass:
    """Average precision of each class, in [0, 1].

    The mean, over the positives, of the precision among the items that score at least as high; items with equal
    scores share one threshold, as in scikit-learn. A class without positives gives 0.

    Args:
        logits: scores of (items, classes).
        truth: 1 positive, -1 negative, 0 unknown: left out of its class.
    """
    scores, labels = scores_and_labels(logits, truth)
    return _per_class(scores, labels == 1, None if labels.all() else labels != 0, missing=0.0)


def mean_average_precision(logits: Values, truth: Values) -> float:
    """Mean of the average precision over all classes, in [0, 1]; a class without positives counts 0."""
    values = average_precision(logits, truth)
    if not len(values):
        raise UserError("there are no classes to average over")
    return float(values.mean())


def observed_average_precision(logits: Values, observed: Values) -> PerClass:
    """Average precision of the observed positives of each class against all its other items; nan where none is.

    AP is the mean over positives s of pi TPR(s) / q(s), where pi is the share of positives, TPR(s) the share of
    positives and q(s) the share of all items that score at least s. If each positive of a class is observed with the
    same probability c, whatever its score, the observed positives have the same TPR and their share is c pi: the value
    is then c AP up to sampling error, and ranks models as AP does. Where one positive is drawn per item, items with
    many positives are observed less in each class, and the factor is constant only in so far as the score does not
    depend on that number.

    Args:
        logits: scores of (items, classes).
        observed: 1 known positive; 0 (unknown) and -1 (known negative) are both the rest.
    """
    scores, labels = scores_and_labels(logits, observed, "observed")
    return _per_class(scores, labels == 1, None, missing=np.nan)


def estimated_map(logits: Values, observed: Values) -> float:
    """Mean of `observed_average_precision` over the classes with an observed positive: for comparing models only.

    It needs no complete labels. Its size is not that of mAP (each class is scaled by its share of observed positives).
    """
    values = observed_average_precision(logits, observed)
    if np.isnan(values).all():
        raise UserError(
            "no class has an observed positive, so mAP cannot be estimated; give labels with some"
        )
    return float(np.nanmean(values))


def _per_class(scores: Floats, positive: Mask, known: Mask | None, missing: float) -> PerClass:
    items, classes = scores.shape
    values = np.full(classes, missing)

    def fill(columns: slice) -> None:
        block, hits = (
            np.ascontiguousarray(scores[:, columns].T),
            np.ascontiguousarray(positive[:, columns].T),
        )
        for offset, (row, hit) in enumerate(zip(block, hits, strict=True)):
            if hit.any():
                column = columns.start + offset
                values[column] = _one_class(
                    row if known is None else row[known[:, column]], row[hit]
                )

    parts = list(blocks(classes, items))
    if len(parts) > 1:
        with ThreadPoolExecutor() as pool:  # sorting releases the interpreter lock
            list(pool.map(fill, parts))
    elif parts:
        fill(parts[0])
    return values


def _one_class(scores: Floats, positives: Floats) -> float:
    """AP from counts of the scores that reach each positive: two sorts of values, and no order of items."""
    scores, positives = np.sort(scores), np.sort(positives)
    reached = len(scores) - np.searchsorted(scores, positives)
    hits = len(positives) - np.searchsorted(positives, positives)
    return float(np.mean(hits / reached))
