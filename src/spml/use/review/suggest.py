"""Score a run's items and suggest the labels most likely missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from spml.data import LabelTable
from spml.data.readers.builder import OnError
from spml.model import Classifier, ModelInfo
from spml.use.review.ranking import Labels, fit_scale, likeliest
from spml.use.stored_model import score_readable


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

    No other than the table's observed labels are read. `columns` are the classes to suggest, all by
    default; an unreadable picture is left out if there is `on_error`.
    """
    logits, read = score_readable(table, model, info, batch_size, on_error, advance)
    observed: Labels = table.labels
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
