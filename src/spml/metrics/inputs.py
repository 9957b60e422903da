"""Scores and labels as every metric wants them: checked numpy arrays of one shape."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
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

HIGHEST = 6e4  # beyond it a logit of half precision is infinite
BLOCK = 1 << 20  # entries worked on at once, so that temporary arrays stay small


def scores_and_labels(logits: Values, labels: Values, name: str = "truth") -> tuple[Floats, Labels]:
    """Logits in float32 or float64 and labels in int8, both (items, classes).

    Args:
        logits: scores; half precision is widened, which keeps their order.
        labels: 1, 0 or -1.
        name: what the labels are called in messages; of "truth" without a negative a warning is given.
    """
    scores, marks = as_numpy(logits), as_numpy(labels)
    if scores.ndim != 2 or scores.shape != marks.shape:
        raise UserError(
            f"logits {scores.shape} and {name} {marks.shape} must have one shape, (items, classes)"
        )
    known = as_labels(marks, name)
    if name == "truth" and known.size and known.min() == 0 and known.max() == 1:
        warnings.warn(
            "truth holds 1 and 0 but no -1: a 0 is an unknown label, which is left out; write absent labels as -1",
            stacklevel=3,
        )
    return _scores(scores), known


def blocks(length: int, width: int) -> Iterator[slice]:
    """Slices that cover `length` rows of `width` entries, a block of entries at a time."""
    step = max(1, BLOCK // max(width, 1))
    return (slice(start, start + step) for start in range(0, length, step))


def sigmoid(logits: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Probabilities of logits of any size."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-np.asarray(logits, np.float64))))


def as_numpy(values: Values) -> npt.NDArray[Any]:
    """An array of what was given, taken off its device."""
    torch = sys.modules.get(
        "torch"
    )  # a tensor can only come from a program that has imported torch
    if torch is not None and isinstance(values, torch.Tensor):
        tensor = values.detach().cpu()
        values = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return np.asarray(values)


def as_labels(values: npt.NDArray[Any], name: str) -> Labels:
    """Labels of (items, classes) in int8, refused where they are not 1, 0 or -1."""
    if values.dtype == np.bool_:
        raise UserError(
            f"{name} is boolean, and False could mean absent (-1) or unknown (0); give 1, 0 and -1"
        )
    with np.errstate(invalid="ignore"):
        labels = values.astype(np.int8, copy=False)
    wrong = (labels < -1) | (labels > 1)
    if labels is not values:
        wrong |= labels != values
    if wrong.any():
        item, column = np.argwhere(wrong)[0]
        value = values[item, column]
        raise UserError(
            f"{name} holds {value} at item {item}, class {column}; labels are 1, 0 (unknown) and -1"
        )
    return labels


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
