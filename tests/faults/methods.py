"""Custom losses that fail or draw at random."""

import random

import numpy as np
import torch
from torch.nn.functional import softplus

from spml import losses


class drawn(losses.Method):  # noqa: N801
    """Draws from every random generator at each epoch and step, and remembers the draws."""

    needs = frozenset({"items", "index"})

    def __init__(self, items=0, classes=0, observed=None):
        super().__init__()
        self.register_buffer("seen", torch.zeros(items, classes))
        self.salt = 0.0

    def begin_epoch(self, epoch, epochs):
        self.salt = float(torch.rand(())) + random.random() + np.random.rand()

    def forward(self, logits, observed, *, epoch, epochs, index, **more):
        weights = (
            torch.rand_like(logits) + self.salt + random.gauss(0, 1) ** 2 + np.random.randn() ** 2
        )
        self.seen[index] += weights
        return (
            softplus(logits * (1 - 2 * (observed == 1).float())) * weights / self.seen[index].add(1)
        ).mean()


class _Counted(losses.Method):
    """A loss that fails in a chosen training step, counted over epochs."""

    needs = frozenset({"items", "index"})

    def __init__(self, step=0, value="nan", items=0, classes=0, observed=None):
        super().__init__()
        self.step, self.value = int(step), float(value)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scores", torch.zeros(items, classes))

    def forward(self, logits, observed, *, epoch, epochs, index, **more):
        self.steps += 1
        self.scores[index] = logits.detach()
        loss = softplus(logits * (1 - 2 * (observed == 1).float())).mean()
        return self.wrong(loss, logits) if self.steps == self.step else loss


class broken(_Counted):  # noqa: N801
    """Its loss is not finite."""

    def wrong(self, loss, logits):
        return loss * self.value


class broken_gradient(_Counted):  # noqa: N801
    """Its gradient is not finite, but its loss is."""

    def wrong(self, loss, logits):
        return loss + (0 * logits).abs().sqrt().sum()
