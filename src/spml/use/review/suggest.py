"""Score a run's items and suggest the labels most likely missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from spml.data import LabelTable
from spml.data.images.cache import Cache
from spml.data.images.loader import OnError
from spml.errors import UserError
from spml.model import Classifier, ModelInfo
from spml.model.scoring import score_stream
from spml.use.review.ranking import Labels, Logits, fit_scale, likeliest
from spml.use.stored_model import NOT_NUMBERS, feed_for, none_read

DENSE_LIMIT = 2**31  # logits in memory at once


@dataclass(frozen=True)
class Suggestion:
    """An unknown label that is likely positive.

    Attributes:
        row: row of the item in the table.
        column: column of the class.
        probability: the model's probability, calibrated if the model is.
        score: score that orders the list.
    """

    row: int
    column: int
    probability: float
    score: float


def suggest(
    table: LabelTable,
    model: Classifier,
    info: ModelInfo,
    count: int,
    *,
    columns: Sequence[int] | None = None,
    per_class: int | None = None,
    batch_size: int = 64,
    on_error: OnError | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> list[Suggestion]:
    """The unknown labels of a table that are most likely positives, best first.

    Args:
        table: items with observed labels; no other label is read.
        model: the model, on its device.
        info: its description.
        count: number of suggestions at most.
        columns: classes to suggest; default: all.
        per_class: suggestions of one class at most.
        batch_size: items per batch.
        on_error: called for each unreadable picture, which is left out; without it, it is raised.
        advance: called with the number of items done and their total.
    """
    logits = score(table, model, info, batch_size=batch_size, on_error=on_error, advance=advance)
    read = np.isfinite(logits[:, 0])
    if not read.any():
        raise none_read(len(table))
    observed: Labels = table.labels
    scale = fit_scale(logits[read], observed[read])
    observed = np.where(read[:, None], observed, np.int8(1))  # unread items get no suggestion
    rows, classes = likeliest(
        scale, np.nan_to_num(logits), observed, count, columns=columns, per_class=per_class
    )
    calibrated = info.calibrate()(torch.from_numpy(logits[rows]))
    probabilities = calibrated.sigmoid().numpy()
    scores = scale(logits[rows])
    return [
        Suggestion(int(row), int(column), float(probabilities[i, column]), float(scores[i, column]))
        for i, (row, column) in enumerate(zip(rows, classes, strict=True))
    ]


def score(
    table: LabelTable,
    model: Classifier,
    info: ModelInfo,
    *,
    batch_size: int = 64,
    cache: Cache | None = None,
    on_error: OnError | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> Logits:
    """Logits of all items; NaN for a picture that cannot be read."""
    size = len(table), len(info.classes)
    if size[0] * size[1] > DENSE_LIMIT:
        raise UserError(
            f"{size[0]:,} items x {size[1]:,} classes are too many to rank together; "
            "give --split val"
        )
    logits = np.full(size, np.nan, np.float32)
    feed = feed_for(table, info, cache)
    device = next(model.parameters()).device
    model.eval()
    batches = feed.in_order(batch_size, on_error)
    for scores, rows in score_stream(lambda x: model(x).float(), batches, device):
        if not scores.isfinite().all():
            raise UserError(NOT_NUMBERS)
        logits[rows] = scores.numpy()
        if advance is not None:
            advance(int(rows[-1]) + 1, len(table))
    return logits
