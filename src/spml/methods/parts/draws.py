"""Random numbers that are an epoch's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spml.losses.framework import Method


class EpochDraws(Method):
    """A method that draws other random numbers in each epoch; `salt`, which says what numbers, is in its state."""

    salt = 0

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Other random numbers from here on."""
        self.salt = int(torch.randint(2**62, ()))

    def get_extra_state(self) -> Tensor:
        """What random numbers the epoch in hand has."""
        return torch.tensor(self.salt)

    def set_extra_state(self, state: Tensor) -> None:
        """Have the same ones."""
        self.salt = int(state)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        state_dict.setdefault(
            f"{prefix}_extra_state", self.get_extra_state()
        )  # older states do not tell
        super()._load_from_state_dict(state_dict, prefix, *rest)
