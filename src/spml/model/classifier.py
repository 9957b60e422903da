"""Classifier: normalise, backbone, head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spml.errors import UserError
from spml.model.backbones import Backbone, build_backbone
from spml.model.heads import build_head


class Classifier(nn.Module):
    """Logits of pictures (uint8, or floats in 0..255) or feature vectors; the inputs' mean and scale belong to it.

    Args:
        backbone: gives a feature map, or the feature vectors themselves.
        num_classes: number of logits.
        head: "linear" on pooled features, or "boostlu" on a feature map.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, num_classes: int, head: str = "linear") -> None:
        super().__init__()
        self.backbone = backbone.network
        self.head = build_head(head, backbone.channels, num_classes)
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
        cls, backbone: str, num_classes: int, weights: str = "none", features: int | None = None, head: str = "linear"
    ) -> Classifier:
        """A classifier on the backbone of that name; `features` is the length of feature vectors."""
        model = cls(build_backbone(backbone, weights, features), num_classes, head)
        if features is not None and model.head.per_position:
            raise UserError(f"--head {head} needs a feature map, which --backbone linear has not; give --head linear")
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
        normalised = (x.to(self.head.weight.dtype) - self.mean) / self.std
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
            return features.flatten(1, 2) if self._channels_last(features) else features.flatten(2).transpose(1, 2)
        return features[:, self._prefix :] if features.ndim == 3 else features

    def _channels_last(self, features: Tensor) -> bool:
        """Some backbones give their maps as (B, h, w, channels)."""
        return features.shape[1] != self.head.in_features and features.shape[-1] == self.head.in_features

    @property
    def _prefix(self) -> int:
        """Tokens that stand for no position."""
        return int(getattr(self.backbone, "num_prefix_tokens", 0))

    def head_input(self, features: Tensor) -> Tensor:
        """What the head takes: pooled features (B, channels), or those of each position."""
        wants = 3 if self.head.per_position else 2
        given = self.positions(features) if self.head.per_position else self.pool(features)
        if given.ndim == wants:
            return given
        if self.head.per_position:
            raise UserError(
                f"this backbone gives {tuple(features.shape)}, which is no feature map; "
                "give --head linear or another --backbone"
            )
        raise UserError(f"this backbone gives {tuple(features.shape)}, which cannot be pooled; choose another")

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes)."""
        logits: Tensor = self.head(self.head_input(self.features(x)))
        return logits
