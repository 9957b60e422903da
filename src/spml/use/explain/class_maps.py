"""Class maps: where in a picture the evidence for each class lies."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spml.errors import UserError
from spml.model import Classifier, ModelInfo
from spml.model.classifier import BoostLU
from spml.model.query import QueryHead

EVIDENCE = (
    "evidence in logits above the class's threshold; "
    "its mean over the picture is how far the class is above it"
)
ATTENTION = "attention of the last layer: where the class looks, not what it finds there"
LEAST = 1.0  # logits: full colour means at least this much, so that weak evidence looks weak


def is_evidence(model: Classifier) -> bool:
    """Whether class maps hold logits, whose mean is the class's logit, and not attention."""
    return not isinstance(model.head, QueryHead)


def meaning(model: Classifier) -> str:
    """Meaning of the values that `from_threshold` returns, as text."""
    return EVIDENCE if is_evidence(model) else ATTENTION


def full_colour(model: Classifier, maps: Tensor) -> float:
    """Value drawn in full colour in all maps (classes, h, w) of one picture; 0 has no colour."""
    least = LEAST if is_evidence(model) else 1 / maps[0].numel()
    return max(least, float(maps.max()))


def class_maps(model: Classifier, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, classes) and a map of each class (B, classes, h, w).

    A linear head on mean-pooled features is the mean of the same layer at each position, so its map
    is exact: the mean over positions is the logit, bias included. So is that of the BoostLU head,
    with the boosted values. A query head mixes positions before it reads them and has no such sum;
    its map is the attention of each class in the last layer.

    Args:
        model: a model of pictures; feature vectors have no positions and raise UserError.
        x: uint8 pictures (B, 3, H, W), or floats in 0..255.
    """
    if x.ndim != 4:
        raise UserError(
            "this model takes feature vectors, which have no places to show; explain needs pictures"
        )
    features = model.features(x)
    if features.ndim < 3:
        raise UserError(
            "this backbone gives one vector a picture and no feature map; class maps need a map"
        )
    head, positions = model.head, model.positions(features)
    logits: Tensor = head(model.head_input(features))
    if isinstance(head, QueryHead):
        maps = head.attention(positions)
    elif isinstance(head, BoostLU):
        maps = head.boosted(positions).transpose(1, 2)
    else:
        maps = F.linear(positions, head.weight, head.bias).transpose(1, 2)
    return logits, maps.reshape(*logits.shape, *model.grid(features))


def from_threshold(model: Classifier, info: ModelInfo, maps: Tensor) -> Tensor:
    """Maps (classes, h, w) minus the logit at which their class becomes a tag.

    Attention is returned unchanged. A calibration may put that logit below 0: evidence below 0 then
    supports the class too.
    """
    return maps - info.cuts()[:, None, None] if is_evidence(model) else maps


def enlarged(maps: Tensor, height: int, width: int) -> Tensor:
    """Maps (..., h, w) interpolated to the picture's size, within the range of their values."""
    flat = maps.float().reshape(1, -1, *maps.shape[-2:])
    large = F.interpolate(flat, size=(height, width), mode="bicubic", align_corners=False)
    low, high = flat.amin(dim=(2, 3), keepdim=True), flat.amax(dim=(2, 3), keepdim=True)
    return torch.minimum(torch.maximum(large, low), high).reshape(*maps.shape[:-2], height, width)
