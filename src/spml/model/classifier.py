"""Classifier: normalise the inputs, run the backbone, apply the head."""

from collections.abc import Callable, Iterator
from typing import ClassVar, Self, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spml.errors import UserError
from spml.model.backbones import Backbone, build_backbone
from spml.model.query import RELEASED, QueryHead, QueryNormalHead

Output = Tensor | tuple[Tensor, Tensor]  # logits, or logits and features


class LinearHead(nn.Linear):
    """Logits of pooled features (B, channels), in float32 in evaluation under any precision.

    bfloat16 has eight bits: among some thousand items most logits would tie and have no rank.
    """

    per_position: ClassVar[bool] = False  # takes the features of each position, not their mean
    takes_vectors: ClassVar[bool] = True  # accepts feature vectors, which have no positions

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (B, classes), or those of each position."""
        kind = features.device.type
        if self.training or not torch.is_autocast_enabled(kind):
            return super().forward(features)
        with torch.autocast(kind, enabled=False):
            return super().forward(features.float())


class BoostLU(LinearHead):
    """A linear layer at each position, positive values times `alpha`, then the mean.

    As in Kim et al. (CVPR 2023). The layer is a 1x1 convolution with bias, and the bias is boosted
    too. With alpha = 1 it equals the linear head.
    """

    per_position = True
    takes_vectors = False
    alpha: float = 5.0  # the published value, for training and evaluation

    def boosted(self, positions: Tensor) -> Tensor:
        """Return the contribution of each position to the mean: (B, positions, classes)."""
        maps = super().forward(positions)
        return torch.where(maps > 0, self.alpha * maps, maps)

    def forward(self, positions: Tensor) -> Tensor:
        """Return logits of features (B, positions, channels)."""
        return self.boosted(positions).mean(dim=1)


Head = LinearHead | QueryHead
HEADS: dict[str, Callable[..., Head]] = {
    "linear": LinearHead,
    "boostlu": BoostLU,
    "query": QueryHead,
    "query-normal": QueryNormalHead,
}
SIZED = ("query-normal",)  # names that accept a size: query-normal:64


def build_head(name: str, channels: int, num_classes: int, structure: str = RELEASED) -> Head:
    """Build the head of that name; "query-normal:64" has embeddings of 64 numbers.

    The structure is that of a query head; the others have one only.
    """
    kind, colon, size = name.partition(":")
    if kind not in HEADS or (colon and kind not in SIZED):
        raise UserError(f"no head {name!r}; give --head {' or '.join(HEADS)}")
    rest = {"structure": structure} if kind.startswith("query") else {}
    if not colon:
        return HEADS[kind](channels, num_classes, **rest)
    if not size.isdigit() or int(size) < 1:
        raise UserError(
            f"--head {name}: {size!r} is no size; give a whole number above 0, as in {kind}:64"
        )
    return HEADS[kind](channels, num_classes, int(size), **rest)


class Classifier(nn.Module):
    """Logits of pictures (uint8, or floats in 0..255) or of feature vectors.

    The mean and scale of the inputs are buffers of the module.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        head: str = "linear",
        structure: str = RELEASED,
    ) -> None:
        super().__init__()
        self.backbone = backbone.network
        self.head = build_head(head, backbone.channels, num_classes, structure)
        self.channels = backbone.channels
        self.frozen_norm = False  # keep batch norm's statistics, scale and shift in training
        pictures = bool(backbone.mean)
        shape = (1, -1, 1, 1) if pictures else (1, backbone.channels)
        mean = torch.tensor(backbone.mean) * 255 if pictures else torch.zeros(backbone.channels)
        std = torch.tensor(backbone.std) * 255 if pictures else torch.ones(backbone.channels)
        self.register_buffer("mean", mean.view(shape))
        self.register_buffer("std", std.view(shape))
        if pictures:
            self.to(memory_format=torch.channels_last)  # fastest for convolutions

    @classmethod
    def build(
        cls,
        backbone: str,
        num_classes: int,
        weights: str = "none",
        features: int | None = None,
        head: str = "linear",
        structure: str = RELEASED,
    ) -> Self:
        """Build a classifier by the name of its backbone."""
        model = cls(build_backbone(backbone, weights, features), num_classes, head, structure)
        if features is not None and not model.head.takes_vectors:
            raise UserError(
                f"--head {head} needs a feature map, which --backbone linear has not; "
                "give --head linear"
            )
        return model

    def standardise(self, features: Tensor) -> None:
        """Set mean and scale of the inputs from feature vectors."""
        std = features.double().std(dim=0, correction=0)
        self.mean.copy_(features.double().mean(dim=0).view_as(self.mean))
        self.std.copy_(torch.where(std > 0, std, 1).view_as(self.std))

    def features(self, x: Tensor) -> Tensor:
        """Return the feature map (B, channels, h, w), or feature vectors (B, channels)."""
        if x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        normalised = (x.to(self.std.dtype) - self.mean) / self.std
        features: Tensor = self.backbone(normalised)
        return features

    def pool(self, features: Tensor) -> Tensor:
        """Return the mean over the map, or over the tokens of a transformer."""
        if features.ndim == 4:
            return features.mean(dim=(1, 2) if self._channels_last(features) else (2, 3))
        if features.ndim == 3:
            return features[:, self._prefix :].mean(dim=1)
        return features

    def positions(self, features: Tensor) -> Tensor:
        """Return the map, or the tokens of a transformer, as (B, positions, channels)."""
        if features.ndim == 4:
            if self._channels_last(features):
                return features.flatten(1, 2)
            return features.flatten(2).transpose(1, 2)
        return features[:, self._prefix :] if features.ndim == 3 else features

    def grid(self, features: Tensor) -> tuple[int, int]:
        """Return height and width of the map; tokens of a transformer form a square."""
        if features.ndim == 4:
            last = self._channels_last(features)
            height, width = features.shape[1:3] if last else features.shape[2:]
            return int(height), int(width)
        side = round((features.shape[1] - self._prefix) ** 0.5)
        return side, (features.shape[1] - self._prefix) // side

    def _channels_last(self, features: Tensor) -> bool:
        """Return whether the backbone's maps are (B, h, w, channels)."""
        return features.shape[1] != self.channels and features.shape[-1] == self.channels

    @property
    def _prefix(self) -> int:
        """Number of tokens without a position."""
        return int(getattr(self.backbone, "num_prefix_tokens", 0))

    def head_input(self, features: Tensor) -> Tensor:
        """Return the head's input: pooled features (B, channels), or those of each position."""
        if self.head.per_position and self.head.takes_vectors and features.ndim == 2:
            return features[:, None]
        per_position = self.head.per_position
        inputs = self.positions(features) if per_position else self.pool(features)
        if inputs.ndim == (3 if per_position else 2):
            return inputs
        wrong = "cannot be pooled; choose another"
        if per_position:
            wrong = "is no feature map; give --head linear or another --backbone"
        raise UserError(f"this backbone gives {tuple(features.shape)}, which {wrong}")

    def detailed(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits, and the features for a method that needs them.

        A query head returns the embedding of each label, (B, classes, size). Other heads return a
        class map, their linear layer at each position, (B, classes, h, w). Feature vectors are
        returned unchanged.
        """
        inputs = self.head_input(features)
        if isinstance(self.head, QueryHead):
            return self.head.detailed(inputs)
        logits: Tensor = self.head(inputs)
        if features.ndim == 2:
            return logits, features
        maps = F.linear(self.positions(features), self.head.weight, self.head.bias)
        return logits, maps.transpose(1, 2).reshape(*logits.shape, *self.grid(features))

    def train(self, mode: bool = True) -> Self:
        """Set training mode; frozen batch norm stays in evaluation mode."""
        super().train(mode)
        if self.frozen_norm:
            for module in batch_norms(self.backbone):
                module.eval().requires_grad_(False)
        return self

    @overload
    def forward(self, x: Tensor) -> Tensor: ...

    @overload
    def forward(self, x: Tensor, detailed: bool) -> Output: ...

    def forward(self, x: Tensor, detailed: bool = False) -> Output:
        """Return logits (B, classes), with the features of `detailed` on request."""
        features = self.features(x)
        if detailed:
            return self.detailed(features)
        logits: Tensor = self.head(self.head_input(features))
        return logits


def batch_norms(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the batch norms of a model."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            yield module
