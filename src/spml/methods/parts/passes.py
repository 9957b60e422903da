"""Scores of the whole training split, collected after an epoch."""

import torch
from torch import Tensor

from spml.losses.framework import Method


class PassMethod(Method):
    """A method that uses scores of the whole training split, from its warm-up on.

    A pass follows each epoch from `warmup` to the last but one: nothing would use a later one.
    """

    warmup: int
    items: int
    scores: Tensor | None = None

    def use_scores(self, scores: Tensor, epoch: int, epochs: int) -> None:
        """Update the state by the float32 scores of a complete pass."""
        raise NotImplementedError

    def wants_pass(self, epoch: int, epochs: int) -> bool:
        return self.warmup <= epoch < epochs

    def take_scores(self, logits: Tensor, index: Tensor) -> None:
        if self.scores is None:
            shape = self.items, logits.shape[1]
            self.scores = torch.empty(shape, dtype=torch.float32, device=logits.device)
        self.scores[index] = logits.float()

    def end_epoch(self, epoch: int, epochs: int) -> None:
        if self.scores is not None:
            self.use_scores(self.scores, epoch, epochs)
            self.scores = None
