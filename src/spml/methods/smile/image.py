"""SMILE on pictures: each label's embedding gives the degree to which it describes the picture."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spml import keyed
from spml.losses.components import Context
from spml.methods.mime import embedding_parts, normal_divergence
from spml.methods.parts.beta import FLOOR, divergence, draw
from spml.methods.parts.contrastive import LabelQueue
from spml.methods.smile.table import assume_negative

WRONG_HEAD = (
    "smile needs normal embeddings of each label, not features of shape {}; "
    "give --head query-normal:128"
)


class ImageForm(nn.Module):
    """The loss on pictures; its options are attributes of the method.

    `prepare`, loading a state, or the first batch creates what depends on the embeddings' size.
    """

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, held: int, temperature: float) -> None:
        super().__init__()
        self.held, self.temperature = held, temperature
        self.queue: LabelQueue | None = None

    def prepare(self, features: Tensor) -> None:
        """Create the layers of a and b and the queue for features (items, classes, 2 size + 1)."""
        if features.ndim != 3 or features.shape[2] % 2 == 0 or features.shape[2] < 3:
            raise ValueError(WRONG_HEAD.format(tuple(features.shape)))
        if self.queue is None:
            self._create(features.shape[1], features.shape[2] // 2)
            self.to(features.device)

    def forward(self, smile: Any, logits: Tensor, context: Context) -> Tensor:
        observed, index, features = context.observed, context.index, context.features
        self.prepare(features)
        assert self.queue is not None
        mean, log_deviation, deviation = embedding_parts(features.to(logits.dtype))
        a, b = self.concentrations(mean)
        p, d = logits, (a / b).log()  # logits of the means
        if smile.sample:
            noise = keyed.normal(index, smile.salt, logits.shape[1])
            p = logits + deviation * noise.to(logits.dtype)
            d = draw(a, b, index, smile.salt + 2)
        entries = assume_negative(p, observed), assume_negative(d, observed)
        if context.epoch <= smile.warmup:
            return entries[0] + entries[1]
        target = torch.where(observed == -1, 0.0, d.detach().sigmoid())
        total: Tensor = (
            smile.theta * torch.lerp(F.softplus(p), F.softplus(-p), target)
            + smile.alpha * entries[0]
            + smile.beta * entries[1]
            + smile.kl_embedding * normal_divergence(mean, log_deviation)
            + smile.kl_beta * divergence(a, b)
            + smile.lam * self.queue(mean, observed == 1)
        )
        return total

    def concentrations(self, mean: Tensor) -> Tensor:
        """a and b of each label from the mean of its embedding: (2, items, classes)."""
        weight, bias = self.weight.to(mean.dtype), self.bias[:, None].to(mean.dtype)
        return F.softplus(torch.einsum("bcd,kcd->kbc", mean, weight) + bias) + FLOOR

    def _create(self, classes: int, size: int) -> None:
        bound = 1 / math.sqrt(size)
        self.weight = nn.Parameter(torch.empty(2, classes, size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, classes).uniform_(-bound, bound))
        self.queue = LabelQueue(size, self.held, self.temperature)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        stored = state_dict.get(f"{prefix}weight")
        if self.queue is None and stored is not None:
            self._create(*stored.shape[1:])
            self.to(stored)
        super()._load_from_state_dict(state_dict, prefix, *rest)
