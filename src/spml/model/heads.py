"""Heads: from a backbone's features to logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from spml.errors import UserError
from spml.model.query import QueryHead, QueryNormalHead


class LinearHead(nn.Linear):
    """Logits of pooled features (B, channels), in evaluation in float32 even where all else is in half precision.

    bfloat16 has eight bits: among some thousand items most logits would equal others, and could not be ranked.
    """

    per_position: ClassVar[bool] = (
        False  # whether it takes features of each position rather than their mean
    )
    takes_vectors: ClassVar[bool] = (
        True  # whether feature vectors, which have no positions, will do
    )

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, classes), or of each position."""
        kind = features.device.type
        if self.training or not torch.is_autocast_enabled(kind):
            return super().forward(features)
        with torch.autocast(kind, enabled=False):
            return super().forward(features.float())


class BoostLU(LinearHead):
    """A linear layer at each position, positive values times `alpha`, then the mean (Kim et al., CVPR 2023).

    The layer is a 1x1 convolution with bias; the bias is boosted with the rest. With alpha = 1 it is the linear head.
    """

    per_position = True
    takes_vectors = False
    alpha: float = 5.0  # as published, in training and evaluation alike

    def boosted(self, positions: Tensor) -> Tensor:
        """What each position adds to the mean: (B, positions, classes)."""
        maps = super().forward(positions)
        return torch.where(maps > 0, self.alpha * maps, maps)

    def forward(self, positions: Tensor) -> Tensor:
        """Logits of features (B, positions, channels)."""
        return self.boosted(positions).mean(dim=1)


Head = LinearHead | QueryHead
HEADS: dict[str, Callable[..., Head]] = {
    "linear": LinearHead,
    "boostlu": BoostLU,
    "query": QueryHead,
    "query-normal": QueryNormalHead,
}
SIZED = ("query-normal",)  # whose name may say a size: query-normal:64


def build_head(name: str, channels: int, num_classes: int) -> Head:
    """The head of that name; "query-normal:64" has embeddings of 64 numbers."""
    kind, colon, size = name.partition(":")
    if kind not in HEADS or (colon and kind not in SIZED):
        raise UserError(f"no head {name!r}; give --head {' or '.join(HEADS)}")
    if not colon:
        return HEADS[kind](channels, num_classes)
    if not size.isdigit() or int(size) < 1:
        raise UserError(
            f"--head {name}: {size!r} is no size; give a whole number above 0, as in {kind}:64"
        )
    return HEADS[kind](channels, num_classes, int(size))
