"""One batch: what is seen of it, what the classifier says, and what the method makes of that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spml import losses
from spml.data.feed import Rows
from spml.train.augment import boxes, cut, mirror
from spml.train.settings import Settings
from spml.train.strong import strong_view


class Step:
    """Loss of a batch, as the settings augment it and the method needs it.

    Args:
        model: gives logits, and features where it is asked for them.
        method: is given what it needs.
        settings: resolved.
    """

    def __init__(self, model: Any, method: losses.Method, settings: Settings) -> None:
        self.model, self.method, self.settings = model, method, settings
        self.epochs = settings.epochs or 1

    def loss(self, x: Tensor, observed: Tensor, rows: Rows, index: Tensor, epoch: int) -> Tensor:
        """Of items as they are stored, on the device; `rows` and `index` are the same rows of the training split."""
        x = self._seen(x, index, epoch)
        more: dict[str, Tensor] = {"index": index}
        if "views" in self.method.needs:
            x = torch.cat([x, strong_view(x, rows, self.settings.seed, epoch)])
        if "features" in self.method.needs:
            logits, more["features"] = self.model(x, True)
        else:
            logits = self.model(x)
        if "views" in self.method.needs:
            logits, more["views"] = logits.tensor_split(2)
        loss: Tensor = self.method(logits, observed, epoch=epoch, epochs=self.epochs, **more)
        return loss

    def _seen(self, x: Tensor, index: Tensor, epoch: int) -> Tensor:
        """The pictures as this epoch shows them; the method is told which part of each that is."""
        settings = self.settings
        if x.ndim != 4:
            return x
        seen = boxes(index, settings.seed, epoch, crop=settings.crop, flip=bool(settings.flip))
        self.method.see(seen)
        if settings.crop is not None:
            return cut(x, seen)
        return mirror(x, index, settings.seed, epoch) if settings.flip else x
