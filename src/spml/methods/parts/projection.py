"""Two linear layers on label embeddings, created when their width is known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Projection(nn.Module):
    """A linear layer as wide as its input, ReLU, and a linear layer to `size` numbers.

    `create`, or loading a state, creates the layers.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.layers: nn.Sequential | None = None

    def create(self, like: Tensor) -> None:
        """Create the layers for embeddings of this width, unless there are some."""
        if self.layers is None:
            self._create(like.shape[-1])
            self.to(like.device, torch.promote_types(like.dtype, torch.float32))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Map embeddings (..., width) to (..., size), in the precision of the layers."""
        self.create(embeddings)
        assert self.layers is not None
        projected: Tensor = self.layers(embeddings.to(next(self.parameters()).dtype))
        return projected

    def _create(self, width: int) -> None:
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.size))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        stored = state_dict.get(f"{prefix}layers.0.weight")
        if self.layers is None and stored is not None:
            self._create(stored.shape[1])
            self.to(stored)
        super()._load_from_state_dict(state_dict, prefix, *rest)
