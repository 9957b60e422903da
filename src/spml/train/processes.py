"""One process or many: who does what share of a batch, and how all come to see the whole of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from spml.data.images.loader import Rows


class Processes:
    """The processes of a run. Each scores a share of every batch, and is given the scores of all.

    A method is called in every process with the whole batch, so that what it counts, ranks or remembers is the same
    as in a run of one process, and the same in all of them.

    Args:
        rank: of this process, from 0.
        count: of them.
        device: of this process.
    """

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | str = "cpu") -> None:
        self.rank, self.count, self.device = rank, count, torch.device(device)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks to the user."""
        return self.rank == 0

    def share(self, rows: Rows) -> Rows:
        """This process's part of a batch. Parts are equally long; what is missing at the end is filled up with rows."""
        if self.count == 1:
            return rows
        each = -(-len(rows) // self.count)
        return np.resize(rows, each * self.count)[self.rank * each : (self.rank + 1) * each]

    def share_of(self, tensor: Tensor) -> Tensor:
        """The same of a tensor with a row for each item of the batch."""
        if self.count == 1:
            return tensor
        return tensor[torch.from_numpy(self.share(np.arange(len(tensor)))).to(tensor.device)]

    def whole(self, part: Tensor, length: int) -> Tensor:
        """The whole batch from every process's part; a gradient flows back into this process's."""
        if self.count == 1:
            return part
        gathered: Tensor = _Gather.apply(part, self.rank, self.count)
        return gathered[:length]

    def agreed(self, value: bool) -> bool:
        """What the first process says."""
        if self.count == 1:
            return value
        flag = torch.tensor(int(value), device=self.device)
        dist.broadcast(flag, src=0)
        return bool(flag.item())

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            dist.barrier()


class _Gather(torch.autograd.Function):
    """Rows of all processes, in the order of their ranks.

    Every process computes the same loss from the same gathered rows, and gradients of the model are averaged over
    processes; so each passes on its own rows' gradient times the number of processes, and the average is the sum.
    """

    @staticmethod
    def forward(ctx: Any, part: Tensor, rank: int, count: int) -> Tensor:
        ctx.rank, ctx.count, ctx.rows = rank, count, len(part)
        parts = [torch.empty_like(part) for _ in range(count)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        own = gradients[0][ctx.rank * ctx.rows : (ctx.rank + 1) * ctx.rows]
        return own * ctx.count, None, None
