"""SMILE on feature vectors: a graph of neighbouring items gives the classifier's targets."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spml.losses.components import Context
from spml.methods.parts.beta import divergence, draw, released_divergence

BLOCK = 2**24  # distances computed at once
SHIFT = 1e-5  # added to the concentrations d and 1 - d, as published


class Enhancement(nn.Module):
    """Estimate how much each label describes an item, and reconstruct features from it.

    A graph layer is a linear layer with ReLU on the mean of an item and its k neighbours. Two of
    them and a linear layer give d. An item's d depends only on items up to two steps away, so a
    batch computes only those; the result equals that of the whole graph. Hidden layers are as wide
    as there are classes.
    """

    x: Tensor
    near: Tensor

    def __init__(self, x: Tensor, near: Tensor, classes: int) -> None:
        super().__init__()
        features = x.shape[1]
        self.register_buffer("x", x, persistent=False)
        self.register_buffer("near", near)
        self.first, self.second = nn.Linear(features, classes), nn.Linear(classes, classes)
        self.last = nn.Linear(classes, classes)
        self.encode = _two_layers(features + classes, classes, classes)
        self.decode = _two_layers(2 * classes, classes, features)

    def forward(self, index: Tensor) -> Tensor:
        """Logits of d of these items."""
        around = self.near[index]
        once = F.relu(self.first(self.x[self.near[around]].mean(dim=2)))  # (B, 1 + k, classes)
        twice = F.relu(self.second(once.mean(dim=1)))
        logits: Tensor = self.last(twice)
        return logits

    def restored(self, d: Tensor, index: Tensor) -> Tensor:
        """Features reconstructed from d and an encoding of the item."""
        h = self.encode(torch.cat([self.x[index], d], dim=1))
        x: Tensor = self.decode(torch.cat([d, h], dim=1))
        return x

    def edges(self, index: Tensor) -> Tensor:
        """1 if the second item is a neighbour of the first, else 0: (B, B)."""
        return (self.near[index, 1:, None] == index).any(dim=1).to(self.x.dtype)


class TableForm(nn.Module):
    """The loss on feature vectors; its options are attributes of the method."""

    def __init__(self, table: Tensor, k: int, standardise: bool, classes: int) -> None:
        super().__init__()
        table = standardised(table) if standardise else table
        x = table.to(torch.get_default_dtype())  # the dtype of its layers
        self.enhancement = Enhancement(x, nearest(table, k), classes)

    def forward(self, smile: Any, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry: the classifier's plus the enhancement's; they share no parameter."""
        level = self.enhancement(context.index) / smile.temperature
        classifier = classifier_loss(smile, logits, context.observed, level.detach().sigmoid())
        return classifier + self.enhancement_loss(smile, level, context.observed, context.index)

    def enhancement_loss(
        self, smile: Any, level: Tensor, observed: Tensor, index: Tensor
    ) -> Tensor:
        """Reconstruction of labels, features and graph from d, and d's divergence from uniform."""
        d = level.sigmoid()
        a, b = d + SHIFT, torch.sigmoid(-level) + SHIFT
        drawn = draw(a, b, index, smile.salt) if smile.sample else (a / b).log()
        y = drawn.sigmoid()
        features = F.mse_loss(self.enhancement.restored(d, index), self.enhancement.x[index])
        graph = F.mse_loss(y @ y.T, self.enhancement.edges(index))
        restored = features + assume_negative(drawn, observed) + graph
        kl = divergence if smile.kl == "correct" else released_divergence
        entries: Tensor = (
            assume_negative(level, observed) + smile.gamma * restored + smile.delta * kl(a, b)
        )
        return entries


def classifier_loss(smile: Any, logits: Tensor, observed: Tensor, d: Tensor) -> Tensor:
    """Cross-entropy with target mu d + (1 - mu) s; s is pi0 for unknown labels."""
    known = torch.where(observed == 1, torch.ones_like(d), smile.pi0)
    target = smile.mu * d + (1 - smile.mu) * known
    target = torch.where(observed == -1, 0.0, target).to(logits.dtype)
    entries = torch.lerp(F.softplus(logits), F.softplus(-logits), target)
    return torch.where(observed == 0, smile.rate * entries, entries)


def assume_negative(logits: Tensor, observed: Tensor) -> Tensor:
    """Cross-entropy of each entry; labels that are not known positives count as absent."""
    return F.softplus(torch.where(observed == 1, -logits, logits))


def _two_layers(features: int, width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, out))


def standardised(x: Tensor) -> Tensor:
    """Scale every column to mean 0 and deviation 1, as for the classifier; constant ones to 0."""
    deviation = x.std(dim=0, correction=0)
    return (x - x.mean(dim=0)) / torch.where(deviation > 0, deviation, 1)


def feature_table(x: Any, items: int) -> Tensor:
    """Features of the training split in double precision; ValueError if they do not fit it."""
    table = torch.as_tensor(x).double()
    if table.ndim != 2 or len(table) != items:
        raise ValueError(
            f"x must have one row for each of the {items} items; it has shape {tuple(table.shape)}"
        )
    if not bool(table.isfinite().all()):
        raise ValueError("x holds numbers that are not finite; correct or remove those items")
    return table


def nearest(x: Tensor, k: int) -> Tensor:
    """Each item and its k nearest others by Euclidean distance, nearest first: (items, 1 + k).

    With k items or fewer, all others are neighbours.
    """
    items = len(x)
    k = min(k, items - 1)
    near = torch.empty(items, 1 + k, dtype=torch.int64, device=x.device)
    step = max(1, BLOCK // items)
    for first in range(0, items, step):
        distances = torch.cdist(x[first : first + step], x)
        distances.diagonal(first).fill_(-1.0)  # the item itself comes first, before its duplicates
        near[first : first + step] = distances.topk(1 + k, largest=False).indices
    return near
