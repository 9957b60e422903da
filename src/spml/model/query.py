"""Query-transformer heads: each class looks for itself on the feature map, and so has an embedding of its own."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from spml.errors import UserError

ATTENTION_HEADS = 4
DECODERS = 2
WIDENING = 4  # of the feed-forward layers
SAMPLES = 10  # of the embedding, whose mean a logit is made of in training
LOG_DEVIATION = 6.0  # log of a deviation stays within plus and minus this


class Layer(nn.Module):
    """Attention of some vectors to the positions, then two linear layers; each is added to its input and normalised.

    Of queries it is a decoder layer without attention among the queries, of the positions an encoder layer.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, ATTENTION_HEADS, batch_first=True)
        self.feed = nn.Sequential(
            nn.Linear(width, WIDENING * width), nn.ReLU(), nn.Linear(WIDENING * width, width)
        )
        self.after_attention, self.after_feed = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """(B, number, width) from vectors of the same shape and (B, positions, width)."""
        seen, _ = self.attention(vectors, positions, positions, need_weights=False)
        vectors = self.after_attention(vectors + seen)
        refined: Tensor = self.after_feed(vectors + self.feed(vectors))
        return refined


class QueryHead(nn.Module):
    """One encoder and two decoder layers, a learned query for each class, and a linear layer for each class.

    As in Xie et al. (NeurIPS 2022): width is the backbone's number of channels (2048 on ResNet-50, and the three layers
    then have 151 million parameters), and queries do not look at each other. Positions are not encoded, so that their
    order does not matter; a feature vector is a map of one position. There is no dropout: what an item gives depends on
    nothing but the item, in one process or many.
    """

    per_position: ClassVar[bool] = True
    takes_vectors: ClassVar[bool] = True

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        if channels % ATTENTION_HEADS:
            raise UserError(
                f"a query head splits features into {ATTENTION_HEADS} equal parts, which {channels} channels do not "
                "allow; give another --backbone or --head linear"
            )
        self.encoder = Layer(channels)
        self.decoder = nn.ModuleList([Layer(channels) for _ in range(DECODERS)])
        self.queries = nn.Parameter(torch.randn(num_classes, channels))
        self.read = PerClass(num_classes, channels)

    def labels(self, positions: Tensor) -> Tensor:
        """What each class has found: (B, classes, width)."""
        positions = self.encoder(positions, positions)
        found = self.queries.expand(positions.shape[0], -1, -1)
        for layer in self.decoder:
            found = layer(found, positions)
        return found

    def attention(self, positions: Tensor) -> Tensor:
        """Where each class looks in the last layer, (B, classes, positions); a class's values sum to 1."""
        positions = self.encoder(positions, positions)
        found, last = self.queries.expand(positions.shape[0], -1, -1), self.decoder[-1]
        for layer in self.decoder[:-1]:
            found = layer(found, positions)
        assert isinstance(last, Layer)
        weights: Tensor = last.attention(found, positions, positions, average_attn_weights=True)[1]
        return weights

    def detailed(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the embedding of each label (B, classes, width)."""
        found = self.labels(positions)
        return self.read(found), found

    def forward(self, positions: Tensor) -> Tensor:
        """Logits of features (B, positions, channels)."""
        return self.detailed(positions)[0]


class QueryNormalHead(QueryHead):
    """The same with a normal distribution over each label's embedding; the logit is that of its mean.

    A published logit (Liu et al., ICML 2023) is made of the mean of ten drawn embeddings, in evaluation too. It is a
    weighted sum of normal numbers and so normal itself, with the logit of the mean as its mean and a deviation that
    `detailed` tells: a method draws one number for it, and evaluation has nothing random.
    """

    def __init__(self, channels: int, num_classes: int, size: int = 256) -> None:
        super().__init__(channels, num_classes)
        self.mean, self.spread = nn.Linear(channels, size), nn.Linear(channels, size)
        self.read = PerClass(num_classes, size)

    def detailed(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and (B, classes, 2 size + 1): means, logs of deviations, and the logit's deviation."""
        found = self.labels(positions)
        mean = self.mean(found)
        log_deviation = (self.spread(found) / 2).clamp(-LOG_DEVIATION, LOG_DEVIATION)
        wide = torch.promote_types(mean.dtype, torch.float32)
        parts = self.read.weight.to(wide) * log_deviation.to(wide).exp()
        deviation = torch.linalg.vector_norm(parts, dim=-1, keepdim=True) / math.sqrt(SAMPLES)
        return self.read(mean), torch.cat([mean, log_deviation, deviation.to(mean.dtype)], dim=-1)

    def forward(self, positions: Tensor) -> Tensor:
        """Logits of features (B, positions, channels)."""
        logits: Tensor = self.read(self.mean(self.labels(positions)))
        return logits


class PerClass(nn.Module):
    """A linear layer of its own for each class: (B, classes, width) to (B, classes)."""

    def __init__(self, num_classes: int, width: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(torch.empty(num_classes, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_classes).uniform_(-bound, bound))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Logits."""
        return (embeddings * self.weight).sum(dim=-1) + self.bias
