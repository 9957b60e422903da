"""Random numbers that change with the epoch."""

import torch
from torch import Tensor

from spml.losses.framework import Method


class EpochDraws(Method):
    """A method with new random numbers in each epoch; its state holds their `salt`."""

    salt = 0

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        self.salt = int(torch.randint(2**62, ()))

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.salt)

    def set_extra_state(self, state: Tensor) -> None:
        self.salt = int(state)
