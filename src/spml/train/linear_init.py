"""LinearInit: before all is trained, the head alone is, on features extracted once (Cole et al., 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml import losses
from spml.data.images.cache import MEMORY_SHARE
from spml.data.images.loader import Feed
from spml.data.images.store import format_bytes, free_memory
from spml.data.table import LabelTable
from spml.errors import UserError
from spml.keyed import key
from spml.model import Classifier
from spml.model.scoring import validation_map
from spml.runs.settings import Settings
from spml.train import randomness
from spml.train.display import Display
from spml.train.guard import Guard, Stop, all_finite, finite_gradients
from spml.train.optimizer import make_optimizer, take_step

AT_ONCE = 256  # items scored together
STAGE = 2  # told to `key` and to the order's generator, so that no epoch of the run has the same random numbers


class LinearInit:
    """Epochs of the head and the method; the backbone is only looked at, in evaluation mode and without augmentation.

    Args:
        model: its head is trained.
        method: goes through these epochs as through any others: 1 to `linear_init`.
        settings: resolved.
        fabric: of Lightning, with the device and the precision.
        display: told of size and progress.
        stop: asked between batches; what is done is then lost.
        guard: told of losses.
    """

    def __init__(
        self,
        model: Classifier,
        method: losses.Method,
        settings: Settings,
        fabric: Any,
        display: Display,
        stop: Stop,
        guard: Guard,
    ) -> None:
        self.model, self.method, self.settings = model, method, settings
        self.fabric, self.display, self.stop, self.guard = fabric, display, stop, guard
        self.skip, self.skipped = settings.on_nan == "skip", 0
        self.epochs = settings.linear_init
        self.batch = settings.linear_batch_size or 1
        self.whole = "features" in method.needs  # the method looks at them, not the head alone

    def run(
        self, train: Feed, labels: LabelTable, val: Feed, truth: npt.NDArray[np.int8]
    ) -> dict[str, Any]:
        """Leave head and method as they were after the best epoch; gives that epoch and its validation figure.

        Without validation rows that is the last one, and its figure None.
        """
        self._tell_size(train, val)
        features, unseen = (
            self._extract(train, "training features"),
            self._extract(val, "validation features"),
        )
        optimizers = self._optimizers()
        best: dict[str, Any] = {}
        kept: list[dict[str, Any]] = []
        for epoch in range(1, self.epochs + 1):
            self._train_epoch(epoch, features, labels, optimizers)
            figure = self._figure(unseen, truth)
            if not best or figure is None or figure > best["val_map"]:
                best = {"epoch": epoch, "val_map": figure}
                kept = [_copy(self.model.head.state_dict()), _copy(self.method.state_dict())]
        self.model.head.load_state_dict(kept[0])
        self.method.load_state_dict(kept[1])
        self.method.carry_over()
        if self.skipped:
            best["skipped"] = self.skipped
        shown = "" if best["val_map"] is None else f", validation {best['val_map']:.2f}"
        self.display.line(f"linear init: epoch {best['epoch']} of {self.epochs}{shown}")
        return best

    def _figure(self, unseen: Tensor, truth: npt.NDArray[np.int8]) -> float | None:
        """Of validation; None where there are no rows to validate with."""
        if not len(unseen):
            return None
        logits = (
            torch.cat([self._scores(part) for part in torch.split(unseen, AT_ONCE)]).cpu().numpy()
        )
        return validation_map(logits, truth, self.settings.selection or "observed")

    def _train_epoch(
        self, epoch: int, features: Tensor, labels: LabelTable, optimizers: list[Any]
    ) -> None:
        seed, device = self.settings.seed, self.fabric.device
        randomness.seed(key(seed, epoch, STAGE))
        order = np.random.default_rng((seed, epoch, STAGE)).permutation(len(features))
        self.method.begin_epoch(epoch, self.epochs)
        self.model.head.train()  # the backbone stays as it is
        self.display.begin(f"linear init {epoch}/{self.epochs}", len(order))
        for number, rows in enumerate(
            np.split(order, range(self.batch, len(order), self.batch)), start=1
        ):
            index = torch.from_numpy(rows)
            part = features[index].to(device, non_blocking=True)
            observed = torch.from_numpy(labels.rows(rows)).to(device, non_blocking=True)
            logits, seen = self._detailed(part)
            more = {} if seen is None else {"features": seen}
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            good = not self.skip or all_finite([logits, *more.values()])
            if good:
                loss: Tensor = self.method(
                    logits,
                    observed,
                    epoch=epoch,
                    epochs=self.epochs,
                    index=index.to(device),
                    **more,
                )
                good = not self.skip or bool(loss.isfinite())
            if good:
                self.fabric.backward(loss)
            if not good or (
                self.skip and not finite_gradients(optimizers, self.fabric._precision.precision)
            ):
                self.skipped += 1
                self._advance(len(rows))
                continue
            take_step(optimizers, self.fabric)
            self.guard.watch(loss, logits, rows, f"linear init, epoch {epoch}, batch {number}")
            self._advance(len(rows), self.guard.loss)
        self.guard.finish()
        self.model.head.eval()
        if self.method.wants_pass(epoch, self.epochs):
            for rows_in_order in torch.split(torch.arange(len(features)), AT_ONCE):
                self.method.take_scores(
                    self._scores(features[rows_in_order]), rows_in_order.to(device)
                )
        self.method.end_epoch(epoch, self.epochs)

    def _detailed(self, part: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits, and what the method looks at besides, as wide as in training end to end."""
        with self.fabric.autocast():
            found = self.model.detailed(part) if self.whole else (self.model.head(part), None)
        wide: tuple[Tensor, Tensor | None] = self.fabric._precision.convert_output(found)
        return wide

    @torch.inference_mode()
    def _scores(self, part: Tensor) -> Tensor:
        return self._detailed(part.to(self.fabric.device))[0].float()

    @torch.inference_mode()
    def _look(self, x: Tensor) -> Tensor:
        with self.fabric.autocast():
            features = self.model.features(x.to(self.fabric.device, non_blocking=True))
            return features if self.whole else self.model.head_input(features)

    def _extract(self, feed: Feed, what: str) -> Tensor:
        """Features of all items, in memory of the machine."""
        self.display.begin(what, len(feed))
        self.model.eval()
        kept = torch.empty(0)
        for x, rows in feed.in_order(self.settings.batch_size or 1):
            part = self._look(x)
            if not len(kept):
                kept = torch.empty(len(feed), *part.shape[1:], dtype=part.dtype)
            kept[torch.from_numpy(rows)] = part.cpu()
            self._advance(len(rows))
        return kept

    def _advance(self, count: int, loss: float | None = None) -> None:
        self.display.advance(count, loss)
        if self.stop.asked:
            raise KeyboardInterrupt

    def _tell_size(self, train: Feed, val: Feed) -> None:
        """Say how much memory the features take, before it is taken; refuse what does not fit."""
        self.model.eval()
        one = self._look(next(iter(train.in_order(1)))[0])[0]
        size, free = (
            (len(train) + len(val)) * one.numel() * one.element_size(),
            free_memory(torch.device("cpu")),
        )
        shape = " x ".join(map(str, one.shape))
        if free is not None and size > MEMORY_SHARE * free:
            raise UserError(
                f"--linear-init keeps features of {shape}, {format_bytes(size)} in all, "
                f"and {format_bytes(free)} of memory are free; "
                "leave it out, or give --head linear, a smaller --size or another --backbone"
            )
        self.display.line(
            f"linear init: features of {shape} for each item take {format_bytes(size)} of memory"
        )

    def _optimizers(self) -> list[Any]:
        """The head's, with the method's own parameters `head_lr` times as fast, as published; and the method's."""
        lr = self.settings.linear_lr or 0.0
        head = {"params": list(self.model.head.parameters()), "lr": lr}
        groups = [head, *self.method.parameter_groups(lr * (self.settings.head_lr or 1.0))]
        common = make_optimizer(groups, lr, self.settings)
        own = self.method.optimizer()
        return [self.fabric.setup_optimizers(common), *([] if own is None else [own])]


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().cpu().clone() for name, value in state.items()}
