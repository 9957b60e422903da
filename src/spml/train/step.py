"""One batch: what is seen of it, what the classifier says, and what the method makes of that."""

from __future__ import annotations

import torch
from torch import Tensor

from spml import losses
from spml.data.images.loader import Rows
from spml.model.classifier import Forward
from spml.runs.settings import Settings
from spml.train.augment import boxes, cut, mirror
from spml.train.processes import Processes
from spml.train.strong_view import strong_view


class Step:
    """Loss of a batch, as the settings augment it and the method needs it.

    Args:
        forward: gives logits of pictures, or logits and features where the method needs features.
        method: is given what it needs, of the whole batch.
        settings: resolved.
        processes: that share a batch.
    """

    def __init__(
        self, forward: Forward, method: losses.Method, settings: Settings, processes: Processes
    ) -> None:
        self.forward, self.method, self.settings, self.processes = (
            forward,
            method,
            settings,
            processes,
        )
        self.epochs = settings.epochs or 1
        self.wants_boxes = type(method).see is not losses.Method.see
        self.logits = torch.empty(0)  # of the last batch, cut off from its gradient

    def prepare(self, x: Tensor) -> None:
        """What recording or compiling takes, before the first batch: `x` is like a batch as it is stored."""
        self.forward.prepare(torch.cat([x, x]) if "views" in self.method.needs else x)

    def loss(
        self, x: Tensor, observed: Tensor, index: Tensor, rows: Rows, epoch: int
    ) -> Tensor | None:
        """Loss of a batch; None where it is to be left out, since it or its logits are not finite.

        Args:
            x: this process's share of the items, as they are stored, on the device.
            observed: labels of the whole batch, on the device.
            index: rows of the training split of the whole batch, on the device.
            rows: the same, here.
            epoch: from 1.
        """
        needs, share, whole = self.method.needs, self.processes.share, self.processes.whole
        x = self._seen(x, index, epoch)
        if "views" in needs:
            x = torch.cat([x, strong_view(x, share(rows), self.settings.seed, epoch)])
        given = self.forward(x)
        parts = given if isinstance(given, tuple) else (given,)
        more: dict[str, Tensor] = {"index": index}
        if "views" in needs:
            halves = [[whole(half, len(rows)) for half in part.tensor_split(2)] for part in parts]
            logits, more["views"] = halves[0]
            told = [torch.cat(both) for both in halves[1:]]
        else:
            logits, *told = (whole(part, len(rows)) for part in parts)
        if told:
            more["features"] = told[0]
        self.logits = logits.detach()
        if any(self._left_out(part) for part in (logits, *more.values())):
            return None
        loss: Tensor = self.method(logits, observed, epoch=epoch, epochs=self.epochs, **more)
        return None if self._left_out(loss) else loss

    def _left_out(self, value: Tensor) -> bool:
        """Whether the batch is to be skipped; only then is there a wait for the device."""
        return self.settings.on_nan == "skip" and not bool(value.isfinite().all())

    def _seen(self, x: Tensor, index: Tensor, epoch: int) -> Tensor:
        """The pictures as this epoch shows them; the method is told which part of each that is."""
        settings = self.settings
        if x.ndim != 4:
            return x
        if settings.crop is not None or self.wants_boxes:
            seen = boxes(index, settings.seed, epoch, crop=settings.crop, flip=bool(settings.flip))
            self.method.see(seen)
            if settings.crop is not None:
                return cut(x, self.processes.share_of(seen))
        return (
            mirror(x, self.processes.share_of(index), settings.seed, epoch) if settings.flip else x
        )
