"""Heads: from a backbone's features to logits. Each has the parameters of a linear layer, weight and bias."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from spml.errors import UserError


class LinearHead(nn.Linear):
    """Logits of pooled features (B, channels)."""

    per_position: ClassVar[bool] = False  # whether it takes features of each position rather than their mean


class BoostLU(LinearHead):
    """A linear layer at each position, positive values times `alpha`, then the mean (Kim et al., CVPR 2023).

    The layer is a 1x1 convolution with bias; the bias is boosted with the rest. With alpha = 1 it is the linear head.
    """

    per_position = True
    alpha: float = 5.0  # as published, in training and evaluation alike

    def forward(self, positions: Tensor) -> Tensor:
        """Logits of features (B, positions, channels)."""
        maps = super().forward(positions)
        return torch.where(maps > 0, self.alpha * maps, maps).mean(dim=1)


HEADS: dict[str, type[LinearHead]] = {"linear": LinearHead, "boostlu": BoostLU}


def build_head(name: str, channels: int, num_classes: int) -> LinearHead:
    """The head of that name."""
    if name not in HEADS:
        raise UserError(f"no head {name!r}; give --head {' or '.join(HEADS)}")
    return HEADS[name](channels, num_classes)
