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
    """The loss on pictures; the options are those of `smile`.

    `prepare`, loading a state, or the first batch creates what depends on the embeddings' size.
    """

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(
        self,
        *,
        warmup: int,
        alpha: float,
        beta: float,
        theta: float,
        lam: float,
        kl_embedding: float,
        kl_beta: float,
        queue: int,
        queue_temperature: float,
        sample: bool,
    ) -> None:
        super().__init__()
        self.warmup, self.alpha, self.beta, self.theta, self.lam = warmup, alpha, beta, theta, lam
        self.kl_embedding, self.kl_beta, self.sample = kl_embedding, kl_beta, sample
        self.held, self.queue_temperature = queue, queue_temperature
        LabelQueue(1, queue, queue_temperature)  # checks the options
        self.queue: LabelQueue | None = None

    def prepare(self, features: Tensor) -> None:
        """Create the layers of a and b and the queue for features (items, classes, 2 size + 1)."""
        if features.ndim != 3 or features.shape[2] % 2 == 0 or features.shape[2] < 3:
            raise ValueError(WRONG_HEAD.format(tuple(features.shape)))
        if self.queue is None:
            self._create(features.shape[1], features.shape[2] // 2)
            self.to(features.device)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Its layers, at the head's learning rate."""
        return [{"params": list(self.parameters()), "lr": lr}]

    def forward(self, logits: Tensor, context: Context, salt: int) -> Tensor:
        observed, index, features = context.observed, context.index, context.features
        if features is None:
            raise ValueError(
                "smile needs features: an embedding of each label from the head query-normal"
            )
        self.prepare(features)
        assert self.queue is not None
        mean, log_deviation, deviation = embedding_parts(features.to(logits.dtype))
        a, b = self.concentrations(mean)
        p, d = logits, (a / b).log()  # logits of the means
        if self.sample:
            if index is None:
                raise ValueError("smile needs index: random numbers depend on the item")
            p = logits + deviation * keyed.normal(index, salt, logits.shape[1]).to(logits.dtype)
            d = draw(a, b, index, salt + 2)
        entries = assume_negative(p, observed), assume_negative(d, observed)
        if context.epoch <= self.warmup:
            return entries[0] + entries[1]
        positive = observed == 1
        contrast = self.queue.loss(mean, positive)
        if self.training:
            self.queue.push(mean, positive)
        target = torch.where(observed == -1, 0.0, d.detach().sigmoid())
        return (
            self.theta * torch.lerp(F.softplus(p), F.softplus(-p), target)
            + self.alpha * entries[0]
            + self.beta * entries[1]
            + self.kl_embedding * normal_divergence(mean, log_deviation)
            + self.kl_beta * divergence(a, b)
            + self.lam * contrast
        )

    def concentrations(self, mean: Tensor) -> Tensor:
        """a and b of each label from the mean of its embedding: (2, items, classes)."""
        read = torch.einsum("bcd,kcd->kbc", mean, self.weight.to(mean.dtype)) + self.bias[
            :, None
        ].to(mean.dtype)
        return F.softplus(read) + FLOOR

    def _create(self, classes: int, size: int) -> None:
        bound = 1 / math.sqrt(size)
        self.weight = nn.Parameter(torch.empty(2, classes, size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, classes).uniform_(-bound, bound))
        self.queue = LabelQueue(size, self.held, self.queue_temperature)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        stored = state_dict.get(f"{prefix}weight")
        if self.queue is None and stored is not None:
            self._create(*stored.shape[1:])
            self.to(stored)
        super()._load_from_state_dict(state_dict, prefix, *rest)
