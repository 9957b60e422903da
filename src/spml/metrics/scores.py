"""Check logits and labels, compute average precision, compare logits with thresholds."""

import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spml.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Values: TypeAlias = "npt.ArrayLike | Tensor"
Floats = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]

HIGHEST = 6e4  # a logit beyond it is infinite in half precision
BLOCK = 1 << 20  # entries processed at once, to keep temporary arrays small
PerClass = npt.NDArray[np.float64]


def average_precision(logits: Values, truth: Values) -> PerClass:
    """Average precision of each class, in [0, 1].

    The mean, over the positives, of the precision among the items that score at least as high;
    items with equal scores share one threshold, as in scikit-learn. A class without positives gives
    0.

    Args:
        logits: scores of (items, classes).
        truth: 1 positive, -1 negative, 0 unknown: left out of its class.
    """
    scores, labels = scores_and_labels(logits, truth)
    return _per_class(scores, labels == 1, None if labels.all() else labels != 0, missing=0.0)


def mean_average_precision(logits: Values, truth: Values) -> float:
    """Mean of the average precision over classes, in [0, 1]; a class without positives counts 0."""
    values = average_precision(logits, truth)
    if not len(values):
        raise UserError("there are no classes to average over")
    return float(values.mean())


def observed_average_precision(logits: Values, observed: Values) -> PerClass:
    """Average precision of each class's observed positives against all its other items.

    A class without observed positives gives NaN.

    AP is the mean over positives s of pi TPR(s) / q(s), where pi is the share of positives, TPR(s)
    the share of positives and q(s) the share of all items that score at least s. If each positive
    of a class is observed with the same probability c, whatever its score, the observed positives
    have the same TPR and their share is c pi: the value is then c AP up to sampling error, and
    ranks models as AP does. If one positive is drawn per item, items with many positives are
    observed less often in each class; the factor is then constant only if scores do not depend on
    that number.

    Args:
        logits: scores of (items, classes).
        observed: 1 known positive; 0 (unknown) and -1 (known negative) are both the rest.
    """
    scores, labels = scores_and_labels(logits, observed, "observed")
    return _per_class(scores, labels == 1, None, missing=np.nan)


def _per_class(scores: Floats, positive: Mask, known: Mask | None, missing: float) -> PerClass:
    items, classes = scores.shape
    values = np.full(classes, missing)

    def fill(columns: slice) -> None:
        block = np.ascontiguousarray(scores[:, columns].T)
        hits = np.ascontiguousarray(positive[:, columns].T)
        for column, row, hit in zip(range(columns.start, classes), block, hits, strict=False):
            if hit.any():
                ranked = row if known is None else row[known[:, column]]
                values[column] = _one_class(ranked, row[hit])

    with ThreadPoolExecutor() as pool:  # sorting releases the interpreter lock
        list(pool.map(fill, blocks(classes, items)))
    return values


def _one_class(scores: Floats, positives: Floats) -> float:
    """AP from the number of scores that reach each positive: sorts values only, not items."""
    scores, positives = np.sort(scores), np.sort(positives)
    reached = len(scores) - np.searchsorted(scores, positives)
    hits = len(positives) - np.searchsorted(positives, positives)
    return float(np.mean(hits / reached))


def scores_and_labels(logits: Values, labels: Values, name: str = "truth") -> tuple[Floats, Labels]:
    """Logits in float32 or float64 and labels in int8, both (items, classes).

    Args:
        logits: scores; half precision is widened, which keeps their order.
        labels: 1, 0 or -1.
        name: name of the labels in messages; "truth" without a negative causes a warning.
    """
    scores, marks = as_numpy(logits), as_numpy(labels)
    if scores.ndim != 2 or scores.shape != marks.shape:
        raise UserError(
            f"logits {scores.shape} and {name} {marks.shape} must have one shape, (items, classes)"
        )
    known = as_labels(marks, name)
    if name == "truth" and known.size and known.min() == 0 and known.max() == 1:
        warnings.warn(
            "truth holds 1 and 0 but no -1: a 0 is an unknown label, which is left out; "
            "write absent labels as -1",
            stacklevel=3,
        )
    return _scores(scores), known


def blocks(length: int, width: int) -> Iterator[slice]:
    """Slices that cover `length` rows of `width` entries in blocks of about BLOCK entries."""
    step = max(1, BLOCK // max(width, 1))
    return (slice(start, start + step) for start in range(0, length, step))


def sigmoid(logits: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Probabilities of logits of any size."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-np.asarray(logits, np.float64))))


def as_numpy(values: Values) -> npt.NDArray[Any]:
    """Values as a numpy array, copied from their device if necessary."""
    torch = sys.modules.get("torch")  # only a program that has imported torch has tensors
    if torch is not None and isinstance(values, torch.Tensor):
        tensor = values.detach().cpu()
        values = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return np.asarray(values)


def as_labels(values: npt.NDArray[Any], name: str) -> Labels:
    """Labels (items, classes) in int8; raise UserError if one is not 1, 0 or -1."""
    if values.dtype == np.bool_:
        raise UserError(
            f"{name} is boolean, and False could mean absent (-1) or unknown (0); give 1, 0 and -1"
        )
    wrong = (values != 1) & (values != 0) & (values != -1)
    if wrong.any():
        item, column = np.argwhere(wrong)[0]
        value = values[item, column]
        raise UserError(
            f"{name} holds {value} at item {item}, class {column}; labels are 1, 0 (unknown) and -1"
        )
    return values.astype(np.int8, copy=False)


def _scores(values: npt.NDArray[Any]) -> Floats:
    if not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
        raise UserError(f"logits have dtype {values.dtype}; give real numbers")
    scores: Floats = values.astype(np.promote_types(values.dtype, np.float32), copy=False)
    if scores.size and np.isnan(scores.min()):
        item, column = np.argwhere(np.isnan(scores))[0]
        raise UserError(
            f"logits hold NaN, first at item {item}, class {column}: the model has diverged"
        )
    return scores


def reaches(logits: Values, thresholds: npt.ArrayLike) -> Mask:
    """Whether the probability of each logit (..., classes) reaches its class's threshold.

    This and `num_reached`, its form for a grid, are the only comparisons of scores with thresholds.
    It compares logits in float64, because a float32 sigmoid merges high scores. Every logit reaches
    threshold 0, and only an infinite one reaches 1.

    Args:
        logits: scores, calibrated if the thresholds are for calibrated probabilities.
        thresholds: probabilities from 0 to 1, one for all classes or one per class.
    """
    scores = as_numpy(logits).astype(np.float64, copy=False)
    cuts = threshold_logits(thresholds)
    if cuts.shape not in ((), scores.shape[-1:]):
        wanted = f"one number or one for each of {scores.shape[-1]} classes"
        raise UserError(f"thresholds have shape {cuts.shape}; give {wanted}")
    return np.asarray(scores >= cuts)


def num_reached(logits: Values, thresholds: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Number of rising thresholds that each logit reaches: `reaches` for a whole grid at once."""
    scores = as_numpy(logits).astype(np.float64, copy=False)
    return np.searchsorted(threshold_logits(thresholds), scores, side="right")


def threshold_logits(thresholds: npt.ArrayLike) -> PerClass:
    """Logits of probabilities from 0 to 1, in float64; infinite at both ends."""
    p = np.asarray(thresholds, np.float64)
    wrong = ~((p >= 0) & (p <= 1))
    if wrong.any():
        raise UserError(f"thresholds are probabilities from 0 to 1; got {p[wrong].flat[0]}")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p), np.float64)


def ratio(part: npt.ArrayLike, whole: npt.ArrayLike) -> PerClass:
    """Part / whole, 0 if whole is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), whole)
    return np.asarray(np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0))


def precision_recall_f1(
    hits: npt.ArrayLike, chosen: npt.ArrayLike, total: npt.ArrayLike
) -> tuple[PerClass, PerClass, PerClass]:
    """Precision, recall and F1 from numbers of correct tags, of tags and of positives.

    The numbers may be expected ones.
    """
    f1 = ratio(2 * np.asarray(hits), np.asarray(chosen) + total)
    return ratio(hits, chosen), ratio(hits, total), f1
