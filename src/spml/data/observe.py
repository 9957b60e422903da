"""The single positives and the validation split of the field's shared protocol, bit for bit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data.table import Labels, SparseLabels
from spml.errors import DataError, UserError

SEED = 1200

Rows = npt.NDArray[np.int64]


def observe(labels: Any, seed: int = SEED, positives: int = 1, negatives: int = 0) -> Labels:
    """Labels of which only some stay known: int8 (items, classes), 1 and -1 where kept, 0 elsewhere.

    Args:
        labels: complete labels in {1, -1}, a numpy array or torch tensor (items, classes).
        seed: of the draw.
        positives: how many positives of a row stay known; all of them where it has fewer.
        negatives: how many negatives of a row stay known.
    """
    array = labels.detach().cpu().numpy() if hasattr(labels, "detach") else labels
    drawn = draw(SparseLabels.from_dense(array), seed, positives, negatives)
    return drawn.rows(np.arange(drawn.shape[0]))


def draw(
    labels: SparseLabels, seed: int = SEED, positives: int = 1, negatives: int = 0
) -> SparseLabels:
    """`observe` on sparse labels, giving sparse labels."""
    known = _drawn_from(labels, positives, negatives)
    shuffled = known.indices.copy()
    everything = np.arange(labels.num_classes, dtype=np.int32)
    spare = everything.copy()
    kept_negatives: list[npt.NDArray[np.int32]] = []
    rng = np.random.RandomState(seed)
    for start, end in pairwise(known.indptr.tolist()):
        row = shuffled[start:end]
        rng.shuffle(row)
        # The reference shuffles the negatives even when it keeps none; leaving it out would move every later draw.
        others = np.delete(everything, row) if negatives else spare[: len(spare) - len(row)]
        rng.shuffle(others)
        if negatives:
            kept_negatives.append(others[:negatives])
    return _kept(known, shuffled, positives, kept_negatives)


def draw_weighted(
    labels: SparseLabels, log_weights: npt.NDArray[np.float64], seed: int = SEED, positives: int = 1
) -> SparseLabels:
    """Observed labels whose positives are drawn in proportion to weights, without replacement, row by row.

    The first drawn of a row is positive i with probability w_i / sum w: the largest of log w_i plus Gumbel noise. A
    positive of weight 0 is drawn only where a row has too few others.

    Args:
        labels: complete labels.
        log_weights: of each positive, in the order of `labels.positives(-1)`; -inf for weight 0.
        seed: of the draw.
        positives: how many positives of a row stay known; all of them where it has fewer.
    """
    known = _drawn_from(labels, positives)
    uniform = np.random.RandomState(seed).random_sample(len(known.indices))
    exponential = np.maximum(-np.log1p(-uniform), np.finfo(np.float64).tiny)
    keys = log_weights - np.log(exponential)
    order = np.lexsort(
        (uniform, -keys, known.entry_rows())
    )  # equal weights of 0 are settled by the noise alone
    return _kept(known, known.indices[order], positives, [])


def _drawn_from(labels: SparseLabels, positives: int, negatives: int = 0) -> SparseLabels:
    """The positives of complete labels; what cannot be drawn is refused."""
    if positives < 0 or negatives < 0:
        raise UserError(f"positives={positives} and negatives={negatives} must not be below 0")
    if labels.counts(0).any():
        raise DataError(
            "labels hold 0 (unknown); the draw takes complete labels: 1 or -1 in every entry"
        )
    return labels.positives(fill=-1)


def _kept(
    known: SparseLabels,
    shuffled: npt.NDArray[np.int32],
    positives: int,
    negatives: list[npt.NDArray[np.int32]],
) -> SparseLabels:
    """The first positives of each shuffled row and the given negatives of each row, as a table of observed labels."""
    row = known.entry_rows()
    keep = np.arange(len(row)) - known.indptr[row] < positives
    rows, columns, values = row[keep], shuffled[keep], np.ones(int(keep.sum()), np.int8)
    if negatives:
        extra = np.concatenate(negatives)
        rows = np.concatenate(
            [rows, np.repeat(np.arange(len(negatives)), [len(some) for some in negatives])]
        )
        columns = np.concatenate([columns, extra])
        values = np.concatenate([values, np.full(len(extra), -1, np.int8)])
    order = np.lexsort((columns, rows))
    return SparseLabels.from_entries(
        rows[order], columns[order], values[order], known.shape, fill=0
    )


def split(n: int, fraction: float = 0.2, seed: int = SEED) -> tuple[Rows, Rows]:
    """Training rows and validation rows of a list of n, each sorted.

    Args:
        n: length of the list.
        fraction: share of the list that goes to validation, in [0, 1); 0 leaves all rows to training.
        seed: of the permutation.
    """
    if not 0 <= fraction < 1:
        raise UserError(f"validation fraction {fraction} must be at least 0 and below 1")
    if n < 0:
        raise UserError(f"a list of {n} rows cannot be split")
    order = np.random.RandomState(seed).permutation(n)
    num_train = n - round(fraction * n)
    return np.sort(order[:num_train]), np.sort(order[num_train:])
