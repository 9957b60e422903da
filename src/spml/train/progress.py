"""What a run has come to: how it is written down, and taken up again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from spml.keyed import key
from spml.losses import Method
from spml.model import Classifier
from spml.train import randomness


@dataclass(frozen=True)
class Parts:
    """What training changes."""

    classifier: Classifier
    method: Method
    optimizers: list[Any]
    device: torch.device
    precision: Any = None  # Fabric's, which in float16 finds the scale of gradients as it goes


@dataclass
class Progress:
    """Of a run, beside what its parts have learned.

    Attributes:
        history: a line for each epoch.
        best: epoch and validation figure of the best so far.
        within: how far the epoch in hand has come, where it is not at its beginning.
        spent: images and seconds.
    """

    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    within: dict[str, Any] = field(default_factory=dict)
    spent: dict[str, Any] = field(
        default_factory=lambda: {"train_images": 0, "train_seconds": 0.0, "seconds": 0.0}
    )

    def state(self, finished: int, parts: Parts, seconds: float) -> dict[str, Any]:
        """All that a checkpoint holds: `finished` epochs, and how far the next has come.

        Args:
            finished: epochs.
            parts: what training has changed.
            seconds: since this process began with the run.
        """
        return {
            "epoch": finished,
            "within": {**self.within, **randomness.random_state(parts.device)}
            if self.within
            else {},
            "model": parts.classifier.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in parts.optimizers],
            "method": parts.method.state_dict(),
            "precision": {} if parts.precision is None else parts.precision.state_dict(),
            "history": self.history,
            "best": self.best,
            "spent": {**self.spent, "seconds": self.spent["seconds"] + seconds},
        }

    def take_up(self, state: dict[str, Any], parts: Parts, seed: int, epochs: int) -> int:
        """Make all as it was; the number of finished epochs."""
        self.within = dict(state.get("within", {}))
        if self.within:  # what a method draws at the beginning of an epoch, it draws again; the rest it remembers
            randomness.seed(key(seed, state["epoch"] + 1))
            parts.method.begin_epoch(state["epoch"] + 1, epochs)
            self.within["total"] = self.within["total"].to(parts.device)
            randomness.set_random_state(self.within, parts.device)
        parts.classifier.load_state_dict(state["model"])
        for optimizer, stored in zip(parts.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)
        parts.method.load_state_dict(state["method"])
        if state.get("precision"):
            parts.precision.load_state_dict(state["precision"])
        self.history, self.best, self.spent = state["history"], state["best"], state["spent"]
        return int(state["epoch"])
