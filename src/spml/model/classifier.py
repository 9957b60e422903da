"""Classifier: normalise, backbone, pool, linear."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spml.errors import UserError
from spml.model.backbones import Backbone, build_backbone


class Classifier(nn.Module):
    """Logits of pictures (uint8, or floats in 0..255) or feature vectors; the inputs' mean and scale belong to it.

    Args:
        backbone: gives a feature map, or the feature vectors themselves.
        num_classes: of the linear head.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone.network
        self.head = nn.Linear(backbone.channels, num_classes)
        pictures = bool(backbone.mean)
        shape = (1, -1, 1, 1) if pictures else (1, backbone.channels)
        mean = torch.tensor(backbone.mean) * 255 if pictures else torch.zeros(backbone.channels)
        std = torch.tensor(backbone.std) * 255 if pictures else torch.ones(backbone.channels)
        self.register_buffer("mean", mean.view(shape))
        self.register_buffer("std", std.view(shape))
        if pictures:
            self.to(memory_format=torch.channels_last)  # what convolutions run fastest on

    @classmethod
    def build(cls, backbone: str, num_classes: int, weights: str = "none", features: int | None = None) -> Classifier:
        """A classifier on the backbone of that name; `features` is the length of feature vectors."""
        return cls(build_backbone(backbone, weights, features), num_classes)

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
            if features.shape[1] != self.head.in_features and features.shape[-1] == self.head.in_features:
                return features.mean(dim=(1, 2))  # channels last, as some backbones give it
            return features.mean(dim=(2, 3))
        if features.ndim == 3:
            prefix = int(getattr(self.backbone, "num_prefix_tokens", 0))
            return features[:, prefix:].mean(dim=1)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes)."""
        features = self.features(x)
        pooled = self.pool(features)
        if pooled.ndim != 2:
            raise UserError(f"this backbone gives {tuple(features.shape)}, which cannot be pooled; choose another")
        logits: Tensor = self.head(pooled)
        return logits
