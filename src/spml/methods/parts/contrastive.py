"""Contrastive loss that pulls label embeddings of a class together and classes apart."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EMPTY = -1  # class of an empty place of the queue
SHORTEST = 1e-6  # lower bound of the norm that an embedding is divided by


class LabelQueue(nn.Module):
    """Supervised contrastive loss of label embeddings, with a queue of past embeddings.

    An entry is the normalised embedding u of one label of one item. With A, the other entries of
    the batch and all entries of the queue, and P, the entries of A of the same class, its loss is

        log sum over a in A of exp(u·a / T)  -  mean over p in P of u·p / T,

    averaged over the batch's entries with a non-empty P. Without such entries the loss and its
    gradient are 0.

    No shape depends on the labels, so the host never waits for the device: `limit` entries are
    always compared. If there are more, evenly spaced ones are selected; the queue keeps the last
    `size`. Both depend only on the order of the batch.

    Args:
        width: size of an embedding.
        size: number of entries in the queue; the oldest leave first.
        temperature: T.
        limit: number of entries of a batch that are compared.
    """

    embeddings: Tensor
    classes: Tensor

    def __init__(
        self, width: int = 128, size: int = 512, temperature: float = 0.5, limit: int = 1024
    ) -> None:
        super().__init__()
        self.size, self.temperature, self.limit = size, temperature, limit
        self.register_buffer("embeddings", torch.zeros(size, width))  # oldest first
        self.register_buffer("classes", torch.full((size,), EMPTY))

    def forward(self, embeddings: Tensor, positive: Tensor) -> Tensor:
        """The loss, in float32 or wider, of embeddings (items, classes, width) of any norm.

        Positive labels are entries; in training mode, they then enter the queue.
        """
        loss = self.loss(embeddings, positive)
        if self.training:
            self.push(embeddings, positive)
        return loss

    def loss(self, embeddings: Tensor, positive: Tensor) -> Tensor:
        """The loss, which leaves the queue as it is."""
        with torch.autocast(embeddings.device.type, enabled=False):
            chosen = spread(positive.flatten(), self.limit)
            units = _units(embeddings.flatten(0, 1)[chosen])
            present, own = positive.flatten()[chosen], chosen % positive.shape[1]
            near = units @ torch.cat([units, self.embeddings.to(units.dtype)]).T / self.temperature
            there = torch.cat([present, self.classes >= 0])
            own_place = torch.eye(*near.shape, dtype=torch.bool, device=near.device)
            compared = there & ~own_place
            same = compared & (own[:, None] == torch.cat([own, self.classes]))
            partners = same.sum(dim=1)
            whole = near.masked_fill(~compared, -torch.inf).logsumexp(dim=1)
            drawn = (near * same).sum(dim=1) / partners.clamp(min=1)
            counted = present & (partners > 0)
            return torch.where(counted, whole - drawn, 0.0).sum() / counted.sum().clamp(min=1)

    @torch.no_grad()
    def push(self, embeddings: Tensor, positive: Tensor) -> None:
        """Add the entries to the queue; keep the last ones if there are too many."""
        if self.size == 0:
            return
        last = _last(positive.flatten(), self.size)
        own = torch.where(positive.flatten()[last], last % positive.shape[1], EMPTY)
        units = _units(embeddings.flatten(0, 1)[last]).to(self.embeddings.dtype)
        classes = torch.cat([self.classes, own])
        newest = _last(classes >= 0, self.size)
        self.classes, self.embeddings = classes[newest], torch.cat([self.embeddings, units])[newest]


def _units(embeddings: Tensor) -> Tensor:
    wide = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
    return F.normalize(wide, dim=-1, eps=SHORTEST)


def _last(wanted: Tensor, count: int) -> Tensor:
    """Positions of the last `count` wanted entries, in order, preceded by unwanted ones."""
    return wanted.to(torch.uint8).argsort(stable=True)[-count:]


def spread(wanted: Tensor, count: int) -> Tensor:
    """Positions of up to `count` evenly spaced wanted entries, followed by unwanted ones."""
    if len(wanted) > count:
        rank = wanted.cumsum(dim=0)
        share = rank[-1].clamp(min=count)
        wanted = wanted & (rank * count // share > (rank - 1) * count // share)
    return wanted.to(torch.uint8).argsort(stable=True, descending=True)[:count]
