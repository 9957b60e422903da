"""Query-transformer heads: each class attends to the feature map and has its own embedding."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from spml.errors import UserError

ATTENTION_HEADS = 4
DECODERS = 2
WIDENING = 4  # width of the feed-forward layers relative to their input
SAMPLES = 10  # embeddings whose mean gives a logit in training
LOG_DEVIATION = 6.0  # bound of the absolute log deviation
RELEASED = "released"  # structure of new heads: that of the authors' code
EARLIER = "earlier"  # structure of models stored before the structure was recorded


class Layer(nn.Module):
    """Attention of vectors to positions, then two linear layers, each with residual and norm.

    With embeddings of classes it is a decoder layer without self-attention, with positions an
    encoder layer.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, ATTENTION_HEADS, batch_first=True)
        self.feed = nn.Sequential(
            nn.Linear(width, WIDENING * width), nn.ReLU(), nn.Linear(WIDENING * width, width)
        )
        self.after_attention, self.after_feed = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, vectors: Tensor, positions: Tensor, queries: Tensor | None = None) -> Tensor:
        """Map vectors (B, number, width) and positions (B, positions, width) to new vectors.

        Queries are added to the vectors that ask, not to those that the layer passes on.
        """
        asking = vectors if queries is None else vectors + queries
        seen, _ = self.attention(asking, positions, positions, need_weights=False)
        vectors = self.after_attention(vectors + seen)
        refined: Tensor = self.after_feed(vectors + self.feed(vectors))
        return refined


class QueryHead(nn.Module):
    """One encoder and two decoder layers; a learned query and a linear layer for each class.

    As in Xie et al. (NeurIPS 2022): the width is the backbone's number of channels (2048 on
    ResNet-50, for 151 million parameters in three layers), and queries do not attend to each other.
    The decoder starts from zeros and a query only asks, so that an embedding holds nothing but what
    its class saw; weights of layers are initialised by Glorot's rule. In the `EARLIER` structure,
    without a last norm, the queries themselves were the decoder's first vectors.

    Positions are not encoded, so their order does not matter; a feature vector is a map of one
    position. There is no dropout: an item's output depends on nothing but the item.
    """

    per_position: ClassVar[bool] = True
    takes_vectors: ClassVar[bool] = True

    def __init__(self, channels: int, num_classes: int, structure: str = RELEASED) -> None:
        super().__init__()
        if channels % ATTENTION_HEADS:
            raise UserError(
                f"a query head splits features into {ATTENTION_HEADS} equal parts, which "
                f"{channels} channels do not allow; give another --backbone or --head linear"
            )
        self.structure = structure
        self.encoder = Layer(channels)
        self.decoder = nn.ModuleList([Layer(channels) for _ in range(DECODERS)])
        self.queries = nn.Parameter(torch.randn(num_classes, channels))
        self.read = PerClass(num_classes, channels)
        if structure == RELEASED:
            self.norm = nn.LayerNorm(channels)
            for weight in [*self.encoder.parameters(), *self.decoder.parameters()]:
                if weight.ndim > 1:
                    nn.init.xavier_uniform_(weight)

    def labels(self, positions: Tensor) -> Tensor:
        """Return the embedding of each class: (B, classes, width)."""
        embeddings, _ = self._decoded(self.encoder(positions, positions), DECODERS)
        return self.norm(embeddings) if self.structure == RELEASED else embeddings

    def attention(self, positions: Tensor) -> Tensor:
        """Return the last layer's attention (B, classes, positions); each class sums to 1."""
        positions = self.encoder(positions, positions)
        last: Any = self.decoder[-1]
        embeddings, queries = self._decoded(positions, DECODERS - 1)
        asking = embeddings if queries is None else embeddings + queries
        weights: Tensor = last.attention(asking, positions, positions)[1]
        return weights

    def _decoded(self, positions: Tensor, layers: int) -> tuple[Tensor, Tensor | None]:
        """Return the embedding of each class after the first layers, and what it asks with."""
        start = self.queries.expand(positions.shape[0], -1, -1)
        released = self.structure == RELEASED
        embeddings, queries = (torch.zeros_like(start), start) if released else (start, None)
        for layer in self.decoder[:layers]:
            embeddings = layer(embeddings, positions, queries)
        return embeddings, queries

    def detailed(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits, and the embedding of each label (B, classes, width)."""
        embeddings = self.labels(positions)
        return self.read(embeddings), embeddings

    def forward(self, positions: Tensor) -> Tensor:
        """Return logits of features (B, positions, channels)."""
        return self.detailed(positions)[0]


class QueryNormalHead(QueryHead):
    """A query head with a normal distribution over each label's embedding, after two linear layers.

    The logit is that of the distribution's mean. A published logit (Liu et al., ICML 2023) uses the
    mean of ten drawn embeddings, in evaluation too. It is a weighted sum of normal numbers and so
    normal itself: its mean is the logit of the mean, and `detailed` returns its deviation. A method
    draws one number for it, and evaluation is deterministic.
    """

    def __init__(
        self, channels: int, num_classes: int, size: int = 256, structure: str = RELEASED
    ) -> None:
        super().__init__(channels, num_classes, structure)
        if structure == RELEASED:
            self.projection = projection(channels, 2 * size)
        else:
            self.mean, self.spread = nn.Linear(channels, size), nn.Linear(channels, size)
        self.read = PerClass(num_classes, size)

    def statistics(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of each embedding's distribution, and twice its log deviation."""
        if self.structure != RELEASED:
            return self.mean(embeddings), self.spread(embeddings)
        mean, spread = self.projection(embeddings).chunk(2, dim=-1)
        return mean, spread

    def detailed(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits, and (B, classes, 2 size + 1): means, log deviations, logit deviation."""
        mean, spread = self.statistics(self.labels(positions))
        log_deviation = (spread / 2).clamp(-LOG_DEVIATION, LOG_DEVIATION)
        wide = torch.promote_types(mean.dtype, torch.float32)
        parts = self.read.weight.to(wide) * log_deviation.to(wide).exp()
        deviation = torch.linalg.vector_norm(parts, dim=-1, keepdim=True) / math.sqrt(SAMPLES)
        return self.read(mean), torch.cat([mean, log_deviation, deviation.to(mean.dtype)], dim=-1)

    def forward(self, positions: Tensor) -> Tensor:
        """Return logits of features (B, positions, channels)."""
        logits: Tensor = self.read(self.statistics(self.labels(positions))[0])
        return logits


def projection(width: int, size: int) -> nn.Sequential:
    """Two linear layers from label embeddings of a width to embeddings of a size."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, size))


class PerClass(nn.Module):
    """A linear layer of its own for each class: (B, classes, width) to (B, classes)."""

    def __init__(self, num_classes: int, width: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(torch.empty(num_classes, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_classes).uniform_(-bound, bound))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return logits (B, classes)."""
        return (embeddings * self.weight).sum(dim=-1) + self.bias
