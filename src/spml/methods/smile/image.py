"""SMILE on pictures: each label's embedding gives the degree to which it describes the picture."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spml import keyed
from spml.losses.components import Context
from spml.methods.mime import embedding_parts, normal_divergence
from spml.methods.parts.beta import FLOOR, divergence, draw
from spml.methods.parts.contrastive import LabelQueue
from spml.methods.parts.projection import Projection
from spml.methods.smile.table import assume_negative

WRONG_HEAD = "smile needs an embedding of each label, not features of shape {}; give --head query"
Contrast = Literal["draws", "means"]


class ImageForm(nn.Module):
    """The loss on pictures; its options are attributes of the method.

    `prepare`, loading a state, or the first batch creates what depends on the embeddings' size. A
    query head's embeddings are as wide as its layers, which is a multiple of four; those of a
    query-normal head come with a deviation of the logit, so that their number is odd.
    """

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, size: int, held: int, temperature: float, contrast: Contrast) -> None:
        super().__init__()
        self.held, self.temperature, self.contrast = held, temperature, contrast
        self.projection = Projection(2 * size)
        self.queue: LabelQueue | None = None

    def prepare(self, features: Tensor) -> None:
        """Create the layers and the queue for features (items, classes, width)."""
        if features.ndim != 3 or features.shape[2] < 3:
            raise ValueError(WRONG_HEAD.format(tuple(features.shape)))
        if self.queue is None:
            classes, width = features.shape[1:]
            normal = width % 2 == 1
            if not normal:
                self.projection.create(features)
            self._create(classes, width // 2 if normal else width, normal)
            self.to(features.device)

    def forward(self, smile: Any, logits: Tensor, context: Context) -> Tensor:
        observed, index, features = context.observed, context.index, context.features
        self.prepare(features)
        assert self.queue is not None
        described, mean, log_deviation, deviation = self.distributions(features.to(logits.dtype))
        a, b = self.concentrations(described)
        p, d = logits, (a / b).log()  # logits of the means
        if smile.sample:
            d = draw(a, b, index, smile.salt + 2)
            if deviation is not None:
                noise = keyed.normal(index, smile.salt, logits.shape[1])
                p = logits + deviation * noise.to(logits.dtype)
        entries = assume_negative(p, observed), assume_negative(d, observed)
        if context.epoch <= smile.warmup:
            return entries[0] + entries[1]
        level = (d.detach() if smile.detach else d).sigmoid()
        target = torch.where(observed == -1, 0.0, level)
        present = (observed == 1) | ((observed == 0) & (context.logits >= smile.least))
        total: Tensor = (
            smile.theta * torch.lerp(F.softplus(p), F.softplus(-p), target)
            + smile.alpha * entries[0]
            + smile.beta * entries[1]
            + smile.kl_embedding * normal_divergence(mean, log_deviation)
            + smile.kl_beta * divergence(a, b)
            + smile.lam * self.queue(self.views(smile, mean, log_deviation, index), present)
        )
        return total

    def distributions(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Embeddings that describe the labels; means and log deviations of the contrasted ones.

        The last is the deviation of the logit, None if it has none.
        """
        if features.shape[2] % 2:
            mean, log_deviation, deviation = embedding_parts(features)
            return mean, mean, log_deviation, deviation
        mean, spread = self.projection(features).to(features.dtype).chunk(2, dim=-1)
        return features, mean, F.softplus(spread).clamp(min=FLOOR).log(), None

    def views(self, smile: Any, mean: Tensor, log_deviation: Tensor, index: Tensor) -> Tensor:
        """Embeddings in the contrastive loss (views, items, classes, size): two draws, or means."""
        if self.contrast == "means":
            return mean[None]
        if not smile.sample:
            return torch.stack([mean, mean])
        noise = keyed.normal(index, smile.salt + 4, 2, *mean.shape[1:]).to(mean.dtype)
        return (mean[:, None] + log_deviation.exp()[:, None] * noise).transpose(0, 1)

    def concentrations(self, described: Tensor) -> Tensor:
        """a and b of each label from its embedding: (2, items, classes)."""
        weight, bias = self.weight.to(described.dtype), self.bias[:, None].to(described.dtype)
        return F.softplus(torch.einsum("bcd,kcd->kbc", described, weight) + bias) + FLOOR

    def _create(self, classes: int, width: int, normal: bool) -> None:
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(torch.empty(2, classes, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, classes).uniform_(-bound, bound))
        size = width if normal else self.projection.size // 2
        draws = self.contrast == "draws"
        views = 2 if draws else 1
        self.queue = LabelQueue(
            size, self.held, self.temperature, views=views, unit=not draws, whole=draws
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        stored = state_dict.get(f"{prefix}weight")
        if self.queue is None and stored is not None:
            normal = f"{prefix}projection.layers.0.weight" not in state_dict
            self._create(stored.shape[1], stored.shape[2], normal)
            self.to(stored)
        super()._load_from_state_dict(state_dict, prefix, *rest)
