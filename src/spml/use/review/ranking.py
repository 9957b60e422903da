"""Which unknown labels are most likely positives, from logits and observed labels alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from spml.model import ModelInfo

Labels = npt.NDArray[np.int8]
Logits = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
SAMPLE = 20_000_000  # entries for fitting the scale, at most
ROWS = 8192  # rows ranked at once
STEPS = 60  # of Newton's method; it needs about ten


class Suggestion(NamedTuple):
    """An unknown label that is likely positive."""

    row: int  # of the item in the table
    column: int  # of the class
    probability: float  # the model's, calibrated if the model is
    score: float  # orders the list


def suggest(
    logits: Logits,
    observed: Labels,
    read: npt.NDArray[np.bool_],
    info: ModelInfo,
    count: int,
    columns: Sequence[int] | None,
    per_class: int | None,
) -> list[Suggestion]:
    """The unknown labels that are most likely positives, best first, of the items that were read.

    No other than the observed labels are read. `columns` are the classes to suggest, all if None.
    """
    scale = fit_scale(logits[read], observed[read])
    observed = np.where(read[:, None], observed, np.int8(1))  # unread items get no suggestion
    rows, classes = likeliest(scale, logits, observed, count, columns=columns, per_class=per_class)
    calibrated = info.calibrate()(torch.from_numpy(logits[rows]))
    probabilities = calibrated.sigmoid().numpy()
    scores = scale(logits[rows])
    return [
        Suggestion(int(row), int(column), float(probabilities[i, column]), float(scores[i, column]))
        for i, (row, column) in enumerate(zip(rows, classes, strict=True))
    ]


class Scale(NamedTuple):
    """log odds of being observed = slope × logit + shift of the class."""

    slope: float  # one for all classes, above 0
    shifts: npt.NDArray[np.float64]  # one for each class

    def __call__(self, logits: Logits) -> npt.NDArray[np.float64]:
        """Scores that are comparable across classes."""
        return self.slope * logits.astype(np.float64) + self.shifts


def fit_scale(logits: Logits, observed: Labels) -> Scale:
    """Fit the scale under which the observed positives are most likely.

    If training treats unknown labels as negative or common classes as likely, logits of different
    classes are not comparable. The share of observed positives of each class puts them on one
    scale. Known negatives count as not observed. Half a positive is added to each class, so that a
    class without any has a shift.
    """
    sampled = min(len(logits), max(1, SAMPLE // logits.shape[1]))
    wanted = np.linspace(0, len(logits) - 1, sampled).astype(np.int64)
    x, seen = logits[wanted].astype(np.float64), observed[wanted] == 1
    unit = float(x.std()) or 1.0
    x = np.clip((x - x.mean(axis=0)) / unit, -50, 50)
    share = np.clip((seen.sum(axis=0) + 0.5) / (len(x) + 1), None, 0.999)
    slope, shifts = 1.0, np.log(share / (1 - share))
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(slope * x + shifts, -40, 40)))
        weight = p * (1 - p) + 1e-12
        # equation of the slope after eliminating the shifts
        rest = len(x) * share - p.sum(axis=0)
        mass, moment = weight.sum(axis=0), (weight * x).sum(axis=0)
        gradient = ((seen - p) * x).sum() - (moment * rest / mass).sum()
        curvature = (weight * x * x).sum() - (moment**2 / mass).sum()
        step = float(np.clip(gradient / max(curvature, 1e-9), -1, 1))
        moved = max(slope + step, 1e-3)
        shifts = shifts + np.clip((rest - moment * (moved - slope)) / mass, -2, 2)
        done, slope = abs(moved - slope) < 1e-7 and np.abs(rest).max() < 1e-6 * len(x), moved
        if done:
            break
    centre = logits[wanted].mean(axis=0, dtype=np.float64)
    return Scale(slope / unit, shifts - slope / unit * centre)


def likeliest(
    scale: Scale,
    logits: Logits,
    observed: Labels,
    count: int,
    *,
    columns: Sequence[int] | None = None,
    per_class: int | None = None,
) -> tuple[Numbers, Numbers]:
    """Rows and columns of the unknown labels (0) with the highest scores, best first.

    Ties are ordered by row, then column. There are at most `count` labels, at most `per_class` of
    one class, and only of the classes `columns` if they are given.
    """
    every = range(logits.shape[1])
    wanted = np.unique(np.asarray(every if columns is None else columns, np.int64))
    rows, classes, scores = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    for start in range(0, len(logits), ROWS):
        part = slice(start, start + ROWS)
        row, column = np.nonzero(observed[part][:, wanted] == 0)
        rows = np.concatenate([rows, row + start])
        classes = np.concatenate([classes, wanted[column]])
        scores = np.concatenate([scores, scale(logits[part])[row, wanted[column]]])
        keep = np.lexsort((classes, rows, -scores))
        if per_class is not None:
            ranked = classes[keep]
            order = np.argsort(ranked, kind="stable")
            earlier = np.empty_like(order)  # number of better entries of the same class
            earlier[order] = np.arange(len(order)) - np.searchsorted(ranked[order], ranked[order])
            keep = keep[earlier < per_class]
        keep = keep[:count]
        rows, classes, scores = rows[keep], classes[keep], scores[keep]
    return rows, classes
