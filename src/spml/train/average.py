"""An exponential average of a model's weights, used for validation, selection and testing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """The exponential average of a model's parameters and floating-point buffers.

    After step t the decay is min(decay, (1 + t) / (10 + t)), so that the initial weights are
    forgotten within a few steps. Nothing here waits for the device.

    Args:
        model: on its device; the average follows its tensors.
        decay: between 0 and 1.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        named = model.state_dict().items()
        self.live = {name: value for name, value in named if value.is_floating_point()}
        self.average = {name: value.clone() for name, value in self.live.items()}

    def restart(self) -> None:
        """Forget the past: the average becomes the current weights."""
        self.steps = 0
        torch._foreach_copy_([*self.average.values()], [*self.live.values()])

    def update(self) -> None:
        """Include the weights after a training step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_([*self.average.values()], [*self.live.values()], 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights, in place, until the end of the block."""
        live, average = [*self.live.values()], [*self.average.values()]
        own = [value.clone() for value in live]
        torch._foreach_copy_(live, average)
        try:
            yield
        finally:
            torch._foreach_copy_(live, own)

    def state_dict(self) -> dict[str, Any]:
        """Return the content of a checkpoint."""
        return {"steps": self.steps, "average": self.average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the content of a checkpoint."""
        average: dict[str, Tensor] = state["average"]
        self.steps = int(state["steps"])
        for name, value in self.average.items():
            value.copy_(average[name])
