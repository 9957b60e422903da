"""How a stored model is run: where, and with items as it was trained on them."""

from __future__ import annotations

import torch

from spml.data import LabelTable
from spml.data.images.cache import Cache
from spml.data.images.loader import Feed
from spml.errors import UserError
from spml.model import ModelInfo

NOT_NUMBERS = "the model gives values that are not numbers; its weights are damaged"


def none_read(count: int) -> UserError:
    """The error where not one of a run's pictures is to be had."""
    return UserError(
        f"none of {count:,} pictures could be read; nothing was written. --root says where they are now"
    )


def own_device() -> str:
    """A GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def feed_for(table: LabelTable, info: ModelInfo, cache: Cache | None = None) -> Feed:
    """The items of a table as a model takes them; `cache` is of the table's pictures."""
    how = info.preprocessing
    return Feed(table, how["size"], upright=bool(how["upright"]), cache=cache)
