"""Run a stored model: its device, and its scores of the items of a table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.data import LabelTable
from spml.data.images.loader import Feed
from spml.data.readers.builder import OnError
from spml.errors import UserError
from spml.model import Classifier, ModelInfo
from spml.model.scoring import score_stream

NOT_NUMBERS = "the model gives values that are not numbers; its weights are damaged"
DENSE_LIMIT = 2**31  # logits in memory at once


def own_device() -> str:
    """Return "cuda" if a GPU is available, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def calibrated(info: ModelInfo, logits: Tensor) -> Tensor:
    """Return calibrated logits (B, classes); raise UserError if they are not numbers."""
    scores: Tensor = info.calibrate()(logits)
    if not torch.isfinite(scores).all():
        raise UserError(NOT_NUMBERS)
    return scores


def score_readable(
    table: LabelTable,
    model: Classifier,
    info: ModelInfo,
    batch_size: int,
    on_error: OnError | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Score the items that can be read: logits (items, classes), and which items were read.

    An unreadable picture is reported to `on_error`; without it, its error is raised. `advance` is
    called with the number of items done and their total.
    """
    size = len(table), len(info.classes)
    if size[0] * size[1] > DENSE_LIMIT:
        raise UserError(
            f"{size[0]:,} items x {size[1]:,} classes are too many to rank together; "
            "give --split val"
        )
    logits, read = np.zeros(size, np.float32), np.zeros(len(table), bool)
    device = next(model.parameters()).device
    report = None if on_error is None else lambda row, error: on_error(error)
    batches = Feed(table, info.preprocessing["size"]).in_order(batch_size, report)
    for scores, rows in score_stream(lambda x: model(x).float(), batches, device):
        if not scores.isfinite().all():
            raise UserError(NOT_NUMBERS)
        logits[rows], read[rows] = scores.numpy(), True
        if advance is not None:
            advance(int(rows[-1]) + 1, len(table))
    if not read.any():
        raise UserError(
            f"none of {len(table):,} pictures could be read; nothing was written. "
            "give their folder with --root"
        )
    return logits, read
