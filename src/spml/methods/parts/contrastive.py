"""Contrastive loss that pulls label embeddings of a class together and classes apart."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EMPTY = -1  # class of an empty place of the queue
SHORTEST = 1e-6  # lower bound of the norm that an embedding is divided by


class LabelQueue(nn.Module):
    """Supervised contrastive loss of label embeddings, with a queue of past embeddings.

    An entry is one label of one item, with an embedding u in each view. With A, the other
    embeddings of the compared entries, and P, those of A of the same class, the loss of an
    embedding is

        log sum over a in A of exp(u·a / T)  -  mean over p in P of u·p / T.

    Compared are the entries of the batch and the newest of the queue, together `size` entries if
    the batch has no more. The loss is averaged over all their embeddings with a non-empty P, of
    which only those of the batch have a gradient; `whole=False` compares the batch with the entire
    queue, and averages over the batch. Without a pair the loss and its gradient are 0.

    No shape depends on the labels, so the host never waits for the device: `limit` entries are
    always compared. If there are more, evenly spaced ones are selected; the queue keeps the last
    `size`. Both depend only on the order of the batch.

    Args:
        width: size of an embedding.
        size: number of entries in the queue; the oldest leave first.
        temperature: T.
        views: embeddings of an entry.
        unit: scale embeddings to length 1.
        whole: average over the entries of the queue too.
        limit: number of entries of a batch that are compared.
    """

    embeddings: Tensor
    classes: Tensor

    def __init__(
        self,
        width: int = 128,
        size: int = 512,
        temperature: float = 0.5,
        *,
        views: int = 2,
        unit: bool = True,
        whole: bool = True,
        limit: int = 512,
    ) -> None:
        super().__init__()
        self.size, self.temperature, self.limit = size, temperature, limit
        self.unit, self.whole = unit, whole
        self.register_buffer("embeddings", torch.zeros(size, views, width))  # oldest first
        self.register_buffer("classes", torch.full((size,), EMPTY))

    def forward(self, embeddings: Tensor, positive: Tensor) -> Tensor:
        """The loss, in float32 or wider, of embeddings (views, items, classes, width).

        Positive labels (items, classes) are entries; in training mode, they then enter the queue.
        """
        loss = self.loss(embeddings, positive)
        if self.training:
            self.push(embeddings, positive)
        return loss

    def loss(self, embeddings: Tensor, positive: Tensor) -> Tensor:
        """The loss, which leaves the queue as it is."""
        with torch.autocast(embeddings.device.type, enabled=False):
            chosen = spread(positive.flatten(), self.limit)
            new = self._scaled(embeddings.flatten(1, 2)[:, chosen]).flatten(0, 1)
            old = self.embeddings.to(new.dtype).flatten(0, 1)
            views = len(embeddings)
            present = positive.flatten()[chosen]
            filled = self.classes >= 0
            if self.whole:  # the oldest entries leave before those of the batch enter
                filled = filled & (torch.arange(self.size, device=filled.device) >= present.sum())
            new_class = torch.where(present, chosen % positive.shape[1], EMPTY).repeat(views)
            old_class = torch.where(filled, self.classes, EMPTY).repeat_interleave(views)

            near = new @ torch.cat([new, old]).T / self.temperature
            both = torch.cat([new_class, old_class])
            value, counted = _loss(new_class, [_sums(near, new_class, both, own=True)])
            if self.whole and self.size:
                past = (old @ old.T / self.temperature).detach()
                sums = _sums(near[:, len(new) :].T, old_class, new_class)
                parts = _loss(old_class, [sums, _sums(past, old_class, old_class, own=True)])
                value, counted = torch.cat([value, parts[0]]), torch.cat([counted, parts[1]])
            return torch.where(counted, value, 0.0).sum() / counted.sum().clamp(min=1)

    @torch.no_grad()
    def push(self, embeddings: Tensor, positive: Tensor) -> None:
        """Add the entries to the queue; keep the last ones if there are too many."""
        if self.size == 0:
            return
        last = _last(positive.flatten(), self.size)
        own = torch.where(positive.flatten()[last], last % positive.shape[1], EMPTY)
        scaled = self._scaled(embeddings.flatten(1, 2)[:, last]).to(self.embeddings.dtype)
        classes = torch.cat([self.classes, own])
        newest = _last(classes >= 0, self.size)
        both = torch.cat([self.embeddings, scaled.transpose(0, 1)])
        self.classes, self.embeddings = classes[newest], both[newest]

    def _scaled(self, embeddings: Tensor) -> Tensor:
        wide = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
        return F.normalize(wide, dim=-1, eps=SHORTEST) if self.unit else wide


Sums = tuple[Tensor, Tensor, Tensor]


def _sums(near: Tensor, rows: Tensor, columns: Tensor, own: bool = False) -> Sums:
    """Of each row: log of the sum of exponentials, sum over its class, number of its class.

    Args:
        near: products of the rows' embeddings with the columns'.
        rows: classes, EMPTY if there is no entry.
        columns: the same of the columns.
        own: the rows are the first columns; no embedding is compared with itself.
    """
    compared = ((columns >= 0) & (rows >= 0)[:, None]).expand_as(near)
    if own:
        compared = compared & ~torch.eye(*near.shape, dtype=torch.bool, device=near.device)
    same = compared & (rows[:, None] == columns)
    every = near.masked_fill(~compared, -torch.inf).logsumexp(dim=1)
    return every, (near * same).sum(dim=1), same.sum(dim=1)


def _loss(rows: Tensor, parts: list[Sums]) -> tuple[Tensor, Tensor]:
    """Loss of each row's embedding from its sums over parts of the columns, and if it has pairs."""
    every, drawn, pairs = (torch.stack(each) for each in zip(*parts, strict=True))
    total = pairs.sum(dim=0)
    value = every.logsumexp(dim=0) - drawn.sum(dim=0) / total.clamp(min=1)
    return value, (rows >= 0) & (total > 0)


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
