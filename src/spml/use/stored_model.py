"""Run a stored model: its device, and items preprocessed as in training."""

from __future__ import annotations

import torch
from torch import Tensor

from spml.data import LabelTable
from spml.data.images.cache import Cache
from spml.data.images.loader import Feed
from spml.errors import UserError
from spml.model import ModelInfo

NOT_NUMBERS = "the model gives values that are not numbers; its weights are damaged"


def none_read(count: int) -> UserError:
    """Return the error for a run without a readable picture."""
    return UserError(
        f"none of {count:,} pictures could be read; nothing was written. "
        "--root says where they are now"
    )


def calibrated(info: ModelInfo, logits: Tensor) -> Tensor:
    """Return calibrated logits (B, classes); raise UserError if they are not numbers."""
    scores: Tensor = info.calibrate()(logits)
    if not torch.isfinite(scores).all():
        raise UserError(NOT_NUMBERS)
    return scores


def own_device() -> str:
    """Return "cuda" if a GPU is available, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def feed_for(table: LabelTable, info: ModelInfo, cache: Cache | None = None) -> Feed:
    """Return the items of a table as the model takes them; `cache` holds the table's pictures."""
    how = info.preprocessing
    return Feed(table, how["size"], upright=bool(how["upright"]), cache=cache)
