"""Linear initialisation: train the head alone on features extracted once (Cole et al., 2021)."""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml import losses
from spml.data.images.cache import MEMORY_SHARE
from spml.data.images.loader import Feed, Rows
from spml.data.images.store import format_bytes, free_memory
from spml.data.table import LabelTable
from spml.errors import UserError
from spml.keyed import key
from spml.model import Classifier
from spml.model.scoring import validation_map
from spml.runs.settings import Resolved
from spml.train.device import Stop
from spml.train.display import Display
from spml.train.state import seed_all
from spml.train.step import Updater, make_optimizer, method_loss

SCORE_BATCH = 256  # items
STAGE = 2  # part of the random keys: no epoch of the run has the same random numbers


class LinearInit:
    """Epochs of the head and the method; the backbone stays in evaluation mode.

    There is no augmentation.
    """

    def __init__(
        self,
        model: Classifier,
        method: losses.Method,
        settings: Resolved,
        fabric: Any,
        display: Display,
        stop: Stop,
    ) -> None:
        self.model, self.method, self.settings = model, method, settings
        self.fabric, self.display, self.stop = fabric, display, stop
        self.epochs, self.skipped = settings.linear_init, 0
        self.needs_features = "features" in method.needs

    def run(
        self, train: Feed, labels: LabelTable, val: Feed, truth: npt.NDArray[np.int8]
    ) -> dict[str, Any]:
        """Train, restore head and method of the best epoch, and return its number and figure.

        Without validation rows the last epoch is the best, and its figure is None.
        """
        self._check_size(train, val)
        features = self._extract(train, "training features")
        unseen = self._extract(val, "validation features")
        skip = self.settings.on_nan == "skip"
        updater = Updater(self.fabric, self.model, self.optimizers(), skip)
        best: dict[str, Any] = {}
        states: list[dict[str, Any]] = []
        for epoch in range(1, self.epochs + 1):
            self._train_epoch(epoch, features, labels, updater)
            figure = None
            if len(unseen):
                parts = [self._scores(part) for part in torch.split(unseen, SCORE_BATCH)]
                logits = torch.cat(parts).cpu().numpy()
                figure = validation_map(logits, truth, self.settings.selection)
            if not best or figure is None or figure > best["val_map"]:
                best = {"epoch": epoch, "val_map": figure}
                states = [_copy(part.state_dict()) for part in (self.model.head, self.method)]
        self.model.head.load_state_dict(states[0])
        self.method.load_state_dict(states[1])
        self.method.carry_over()
        if self.skipped:
            best["skipped"] = self.skipped
        shown = "" if best["val_map"] is None else f", validation {best['val_map']:.2f}"
        self.display.line(f"linear init: epoch {best['epoch']} of {self.epochs}{shown}")
        return best

    def _train_epoch(
        self, epoch: int, features: Tensor, labels: LabelTable, updater: Updater
    ) -> None:
        settings = self.settings
        seed_all(key(settings.seed, epoch, STAGE))
        order = np.random.default_rng((settings.seed, epoch, STAGE)).permutation(len(features))
        size = settings.linear_batch_size
        self.method.begin_epoch(epoch, self.epochs)
        self.model.head.train()
        self.display.begin(f"linear init {epoch}/{self.epochs}", len(order))
        for number, rows in enumerate(np.split(order, range(size, len(order), size)), start=1):
            compute = partial(self._loss, features, labels, rows, epoch)
            loss = updater.update(compute, rows, f"linear init, epoch {epoch}, batch {number}")
            self.skipped += loss is None
            self._advance(len(rows), None if loss is None else updater.watch.loss)
        updater.watch.finish()
        self.model.head.eval()
        if self.method.wants_pass(epoch, self.epochs):
            for index in torch.split(torch.arange(len(features)), SCORE_BATCH):
                logits = self._scores(features[index])
                self.method.take_scores(logits, index.to(self.fabric.device))
        self.method.end_epoch(epoch, self.epochs)

    def _loss(
        self, features: Tensor, labels: LabelTable, rows: Rows, epoch: int
    ) -> tuple[Tensor | None, Tensor]:
        """Return the loss of a batch, None if not finite, and its logits."""
        index, device = torch.from_numpy(rows), self.fabric.device
        part = features[index].to(device, non_blocking=True)
        observed = torch.from_numpy(labels.rows(rows)).to(device, non_blocking=True)
        logits, shown = self._detailed(part)
        call = {"epoch": epoch, "epochs": self.epochs, "index": index.to(device)}
        if shown is not None:
            call["features"] = shown
        skip = self.settings.on_nan == "skip"
        return method_loss(self.method, logits, observed, skip, call), logits

    def _detailed(self, part: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return logits, and features if the method needs them, in float32 as in later epochs."""
        with self.fabric.autocast():
            detailed = self.needs_features
            output: Any = self.model.detailed(part) if detailed else (self.model.head(part), None)
        converted: tuple[Tensor, Tensor | None]
        converted = self.fabric.strategy.precision.convert_output(output)
        return converted

    @torch.inference_mode()
    def _scores(self, part: Tensor) -> Tensor:
        return self._detailed(part.to(self.fabric.device))[0].float()

    @torch.inference_mode()
    def _features(self, x: Tensor) -> Tensor:
        """Return the input of the head, or all features if the method needs them."""
        with self.fabric.autocast():
            features = self.model.features(x.to(self.fabric.device, non_blocking=True))
            return features if self.needs_features else self.model.head_input(features)

    def _extract(self, feed: Feed, what: str) -> Tensor:
        """Return the features of all items, in CPU memory."""
        self.display.begin(what, len(feed))
        self.model.eval()
        features = torch.empty(0)
        for x, rows in feed.in_order(self.settings.batch_size):
            part = self._features(x)
            if not len(features):
                features = torch.empty(len(feed), *part.shape[1:], dtype=part.dtype)
            features[torch.from_numpy(rows)] = part.cpu()
            self._advance(len(rows))
        return features

    def _advance(self, count: int, loss: float | None = None) -> None:
        self.display.advance(count, loss)
        if self.stop.asked:
            raise KeyboardInterrupt

    def _check_size(self, train: Feed, val: Feed) -> None:
        """Print the memory that the features need; raise UserError if it is too much."""
        self.model.eval()
        one = self._features(next(iter(train.in_order(1)))[0])[0]
        size = (len(train) + len(val)) * one.numel() * one.element_size()
        free = free_memory(torch.device("cpu"))
        shape = " x ".join(map(str, one.shape))
        if free is not None and size > MEMORY_SHARE * free:
            raise UserError(
                f"--linear-init keeps features of {shape}, {format_bytes(size)} in all, but only "
                f"{format_bytes(free)} of memory are free; leave it out, or give --head linear, "
                "a smaller --size or another --backbone"
            )
        self.display.line(
            f"linear init: features of {shape} for each item take {format_bytes(size)} of memory"
        )

    def optimizers(self) -> list[Any]:
        """Build the head's optimiser; the method's parameters learn `head_lr` times as fast."""
        lr = self.settings.linear_lr
        head = {"params": list(self.model.head.parameters()), "lr": lr}
        groups = [head, *self.method.parameter_groups(lr * self.settings.head_lr)]
        common = self.fabric.setup_optimizers(make_optimizer(groups, lr, self.settings))
        own = self.method.optimizer()
        return [common] if own is None else [common, own]


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().cpu().clone() for name, value in state.items()}
