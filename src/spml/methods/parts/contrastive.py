"""Embeddings of labels that are present, drawn together within a class and apart between classes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EMPTY = -1  # class of a place of the queue that holds nothing yet
SHORTEST = 1e-6  # an embedding is not divided by less


class LabelQueue(nn.Module):
    """Supervised contrastive loss of label embeddings, and a queue of past ones to compare with.

    An entry is the embedding of one label of one item, u of length 1 and class c. With the others of the batch and
    all of the queue as A, and those of A of the same class as P, an entry costs

        log sum over a in A of exp(u·a / T)  -  mean over p in P of u·p / T,

    and the loss is the mean over the batch's entries that have a P. Without any such entry it is 0, with slope 0.

    No shape depends on what is positive, so nothing waits for the device: `limit` entries are compared whether there
    are as many or not. Where there are more, they are thinned out evenly over the batch; the queue has its own rule,
    the last `size`. Both depend on the order of the batch alone.

    Args:
        width: of an embedding.
        size: entries that the queue holds; those that came first leave first.
        temperature: T.
        limit: entries of a batch that are compared.
    """

    embeddings: Tensor
    classes: Tensor

    def __init__(
        self, width: int = 128, size: int = 512, temperature: float = 0.5, limit: int = 1024
    ) -> None:
        super().__init__()
        if size < 0 or limit < 1:
            raise ValueError(
                f"a queue holds 0 entries or more and compares 1 or more, not {size} and {limit}"
            )
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, not {temperature}")
        self.size, self.temperature, self.limit = size, temperature, limit
        self.register_buffer("embeddings", torch.zeros(size, width))  # oldest first
        self.register_buffer("classes", torch.full((size,), EMPTY))

    def loss(self, embeddings: Tensor, positive: Tensor) -> Tensor:
        """One number, in float32 or wider; `push` them afterwards, since an entry is not compared with itself.

        Args:
            embeddings: of each label, of any length: (items, classes, width).
            positive: which of them are entries: bool (items, classes).
        """
        with torch.autocast(embeddings.device.type, enabled=False):
            chosen = _spread(positive.flatten(), self.limit)
            units = _units(embeddings.flatten(0, 1)[chosen])
            present, own = positive.flatten()[chosen], chosen % positive.shape[1]
            near = units @ torch.cat([units, self.embeddings.to(units.dtype)]).T / self.temperature
            there = torch.cat([present, self.classes >= 0])
            compared = there & ~torch.eye(
                len(units), len(there), dtype=torch.bool, device=near.device
            )
            same = compared & (own[:, None] == torch.cat([own, self.classes]))
            partners = same.sum(dim=1)
            whole = near.masked_fill(~compared, -torch.inf).logsumexp(dim=1)
            drawn = (near * same).sum(dim=1) / partners.clamp(min=1)
            counted = present & (partners > 0)
            return torch.where(counted, whole - drawn, 0.0).sum() / counted.sum().clamp(min=1)

    @torch.no_grad()
    def push(self, embeddings: Tensor, positive: Tensor) -> None:
        """Keep the entries, the last ones where there are more than the queue holds."""
        if self.size == 0:
            return
        last = _last(positive.flatten(), self.size)
        own = torch.where(positive.flatten()[last], last % positive.shape[1], EMPTY)
        units = _units(embeddings.flatten(0, 1)[last]).to(self.embeddings.dtype)
        classes = torch.cat([self.classes, own])
        kept = _last(classes >= 0, self.size)
        self.classes, self.embeddings = classes[kept], torch.cat([self.embeddings, units])[kept]


def _units(embeddings: Tensor) -> Tensor:
    wide = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
    return F.normalize(wide, dim=-1, eps=SHORTEST)


def _last(wanted: Tensor, count: int) -> Tensor:
    """Places of the last `count` that are wanted, in order, at the end; places that are not, before them."""
    return wanted.to(torch.uint8).argsort(stable=True)[-count:]


def _spread(wanted: Tensor, count: int) -> Tensor:
    """Places of up to `count` that are wanted, in order and evenly spread over all; places that are not, after them."""
    if len(wanted) > count:
        rank = wanted.cumsum(dim=0)
        share = rank[-1].clamp(min=count)
        wanted = wanted & (rank * count // share > (rank - 1) * count // share)
    return wanted.to(torch.uint8).argsort(stable=True, descending=True)[:count]
