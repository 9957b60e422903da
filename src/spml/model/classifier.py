"""Classifier: normalise, backbone, head."""

from __future__ import annotations

from typing import overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spml.errors import UserError
from spml.model.backbones import Backbone, build_backbone
from spml.model.heads import build_head
from spml.model.query import QueryHead


class Classifier(nn.Module):
    """Logits of pictures (uint8, or floats in 0..255) or feature vectors; the inputs' mean and scale belong to it.

    Args:
        backbone: gives a feature map, or the feature vectors themselves.
        num_classes: number of logits.
        head: by its name in `spml.model.heads`.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, num_classes: int, head: str = "linear") -> None:
        super().__init__()
        self.backbone = backbone.network
        self.head = build_head(head, backbone.channels, num_classes)
        self.channels = backbone.channels
        self.frozen_norm = False  # batch norm keeps its statistics, scale and shift in training
        pictures = bool(backbone.mean)
        shape = (1, -1, 1, 1) if pictures else (1, backbone.channels)
        mean = torch.tensor(backbone.mean) * 255 if pictures else torch.zeros(backbone.channels)
        std = torch.tensor(backbone.std) * 255 if pictures else torch.ones(backbone.channels)
        self.register_buffer("mean", mean.view(shape))
        self.register_buffer("std", std.view(shape))
        if pictures:
            self.to(memory_format=torch.channels_last)  # what convolutions run fastest on

    @classmethod
    def build(
        cls,
        backbone: str,
        num_classes: int,
        weights: str = "none",
        features: int | None = None,
        head: str = "linear",
    ) -> Classifier:
        """A classifier on the backbone of that name; `features` is the length of feature vectors."""
        model = cls(build_backbone(backbone, weights, features), num_classes, head)
        if features is not None and not model.head.takes_vectors:
            raise UserError(
                f"--head {head} needs a feature map, which --backbone linear has not; give --head linear"
            )
        return model

    def standardise(self, features: Tensor) -> None:
        """Take mean and scale of the inputs from these feature vectors."""
        std = features.double().std(dim=0, correction=0)
        self.mean.copy_(features.double().mean(dim=0).view_as(self.mean))
        self.std.copy_(torch.where(std > 0, std, 1).view_as(self.std))

    def features(self, x: Tensor) -> Tensor:
        """Feature map (B, channels, h, w), or feature vectors (B, channels)."""
        if x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        normalised = (x.to(self.std.dtype) - self.mean) / self.std
        features: Tensor = self.backbone(normalised)
        return features

    def pool(self, features: Tensor) -> Tensor:
        """Mean over the map, or over the tokens of a transformer."""
        if features.ndim == 4:
            return features.mean(dim=(1, 2) if self._channels_last(features) else (2, 3))
        if features.ndim == 3:
            return features[:, self._prefix :].mean(dim=1)
        return features

    def positions(self, features: Tensor) -> Tensor:
        """The map, or the tokens of a transformer, as (B, positions, channels)."""
        if features.ndim == 4:
            return (
                features.flatten(1, 2)
                if self._channels_last(features)
                else features.flatten(2).transpose(1, 2)
            )
        return features[:, self._prefix :] if features.ndim == 3 else features

    def grid(self, features: Tensor) -> tuple[int, int]:
        """Height and width of the map; a transformer's tokens are taken as a square."""
        if features.ndim == 4:
            height, width = (
                features.shape[1:3] if self._channels_last(features) else features.shape[2:]
            )
            return int(height), int(width)
        side = round((features.shape[1] - self._prefix) ** 0.5)
        return side, (features.shape[1] - self._prefix) // side

    def _channels_last(self, features: Tensor) -> bool:
        """Some backbones give their maps as (B, h, w, channels)."""
        return features.shape[1] != self.channels and features.shape[-1] == self.channels

    @property
    def _prefix(self) -> int:
        """Tokens that stand for no position."""
        return int(getattr(self.backbone, "num_prefix_tokens", 0))

    def head_input(self, features: Tensor) -> Tensor:
        """What the head takes: pooled features (B, channels), or those of each position."""
        if self.head.per_position and self.head.takes_vectors and features.ndim == 2:
            return features[:, None]
        wants = 3 if self.head.per_position else 2
        given = self.positions(features) if self.head.per_position else self.pool(features)
        if given.ndim == wants:
            return given
        if self.head.per_position:
            raise UserError(
                f"this backbone gives {tuple(features.shape)}, which is no feature map; "
                "give --head linear or another --backbone"
            )
        raise UserError(
            f"this backbone gives {tuple(features.shape)}, which cannot be pooled; choose another"
        )

    def detailed(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and what a method that needs features looks at.

        A head that has an embedding of each label gives these, (B, classes, size). Other heads have a class map, which
        is their linear layer at each position, (B, classes, h, w); and feature vectors are given as they are.
        """
        given = self.head_input(features)
        if isinstance(self.head, QueryHead):
            return self.head.detailed(given)
        logits: Tensor = self.head(given)
        if features.ndim == 2:
            return logits, features
        maps = F.linear(self.positions(features), self.head.weight, self.head.bias)
        return logits, maps.transpose(1, 2).reshape(*logits.shape, *self.grid(features))

    def train(self, mode: bool = True) -> Classifier:
        """Training mode; batch norm stays as it is where it is frozen."""
        super().train(mode)
        if self.frozen_norm:
            for module in self.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval().requires_grad_(False)
        return self

    @overload
    def forward(self, x: Tensor) -> Tensor: ...

    @overload
    def forward(self, x: Tensor, detailed: bool) -> Tensor | tuple[Tensor, Tensor]: ...

    def forward(self, x: Tensor, detailed: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Logits (B, classes), with what `detailed` gives where it is asked for."""
        features = self.features(x)
        if detailed:
            return self.detailed(features)
        logits: Tensor = self.head(self.head_input(features))
        return logits
