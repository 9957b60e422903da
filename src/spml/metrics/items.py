"""Metrics of each item's ranking of the classes, averaged over items.

Unknown labels are removed from an item before its classes are ranked. Items without a known label
are left out.
"""

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.scores import Floats, Labels, Mask, Values, blocks, scores_and_labels

Counts = npt.NDArray[np.int64]


def precision_at_k(logits: Values, truth: Values, k: int) -> float:
    """Share of positives among the k classes ranked highest, averaged over items.

    Equal logits rank in the order of the classes. An item with fewer than k known labels uses all
    of them.
    """
    scores, labels = scores_and_labels(logits, truth)
    hits = (top_k(scores, labels, k) & (labels == 1)).sum(axis=1)
    ranked = np.minimum((labels != 0).sum(axis=1), k)
    return _mean_ratio(hits, ranked)


def recall_at_k(logits: Values, truth: Values, k: int) -> float:
    """Share of an item's positives that are among its k highest classes, averaged over items.

    Items without a known positive are left out. Equal logits rank in the order of the classes.
    """
    scores, labels = scores_and_labels(logits, truth)
    positive = labels == 1
    hits = (top_k(scores, labels, k) & positive).sum(axis=1)
    return _mean_ratio(hits, positive.sum(axis=1))


def coverage(logits: Values, truth: Values) -> float:
    """Number of top classes that include all positives of an item, averaged over items.

    Classes that tie with the lowest positive are all counted; an item without positives needs 0.
    The best value is the mean number of positives.
    """
    scores, labels = scores_and_labels(logits, truth)
    positive = labels == 1
    lowest = np.where(positive, scores, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    depth = ((scores >= lowest) & (labels != 0) & positive.any(axis=1, keepdims=True)).sum(axis=1)
    return _mean_ratio(depth, (labels != 0).any(axis=1).astype(np.int64))


def ranking_loss(logits: Values, truth: Values) -> float:
    """Share of an item's (positive, negative) pairs in the wrong order, averaged over items.

    A pair is wrong if the negative scores at least as high. An item without pairs has loss 0.
    """
    scores, labels = scores_and_labels(logits, truth)
    wrong, pairs = np.zeros((2, len(scores)), np.int64)
    for rows in blocks(*scores.shape):
        wrong[rows], pairs[rows] = _wrong_pairs(scores[rows], labels[rows])
    known = (labels != 0).any(axis=1)
    return _mean_ratio(wrong[known], np.maximum(pairs[known], 1))


def top_k(scores: Floats, labels: Labels, k: int) -> Mask:
    """Mask of the k highest known entries of each item; ties rank in the order of the classes."""
    if not 1 <= k <= scores.shape[1]:
        raise UserError(f"k is {k}; it must be from 1 to the number of classes, {scores.shape[1]}")
    chosen = np.zeros(scores.shape, np.bool_)
    for rows in blocks(*scores.shape):
        order = np.argsort(-scores[rows], axis=1, kind="stable")
        known = np.take_along_axis(labels[rows] != 0, order, axis=1)
        np.put_along_axis(chosen[rows], order, known & (known.cumsum(axis=1) <= k), axis=1)
    return chosen


def _wrong_pairs(scores: Floats, labels: Labels) -> tuple[Counts, Counts]:
    """Pairs whose negative scores at least as high as the positive, and all pairs, of each item."""
    order = np.argsort(-scores, axis=1)
    ranked = np.take_along_axis(scores, order, axis=1)
    marks = np.take_along_axis(labels, order, axis=1)
    above = (marks == -1).cumsum(axis=1)
    # Tied entries use the count at the end of their run: the least later count that ends a run.
    above[:, :-1][ranked[:, :-1] == ranked[:, 1:]] = scores.shape[1]
    above = np.minimum.accumulate(above[:, ::-1], axis=1)[:, ::-1]
    positive = marks == 1
    pairs = positive.sum(axis=1) * (marks == -1).sum(axis=1)
    return np.where(positive, above, 0).sum(axis=1), pairs


def _mean_ratio(part: Counts, whole: Counts) -> float:
    """Mean of part / whole over the items whose whole is not 0."""
    counts = whole > 0
    if not counts.any():
        raise UserError("no item has a known label that this metric can judge")
    return float(np.mean(part[counts] / whole[counts]))
