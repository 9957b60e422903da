"""A model on batches of one shape, recorded once on a GPU and then replayed: the host has one thing to start, not many.

Threads that decode share Python and the processor with the one that starts the model's kernels, hundreds for a batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

FIRST = 2  # batches of a shape that are run as they are

Score = Callable[[Tensor], Tensor]


def record(score: Score, x: Tensor) -> Score:
    """The same for batches like this one, as a CUDA graph."""
    graph, given = torch.cuda.CUDAGraph(), x.clone()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outcome = score(given)

    def replay(x: Tensor) -> Tensor:
        given.copy_(x)
        graph.replay()
        return outcome.clone()

    return replay


class Replayed:
    """Gives what `score` gives; the first shape that comes often is recorded, others are run as they are.

    Args:
        score: from a batch on the device to what is wanted of it.
        record: makes a faster one for batches of one shape; where it cannot, all goes on without.
    """

    def __init__(self, score: Score, record: Callable[[Score, Tensor], Score] = record) -> None:
        self.score, self.record = score, record
        self.seen: Counter[torch.Size] = Counter()
        self.shape: torch.Size | None = None
        self.fast = score

    def __call__(self, x: Tensor) -> Tensor:
        """What `score` gives for the batch."""
        if self.shape is None:
            self._count(x)
        return self.fast(x) if x.shape == self.shape else self.score(x)

    def _count(self, x: Tensor) -> None:
        if self.seen[x.shape] == FIRST:
            self.shape = x.shape
            with suppress(Exception):  # a backbone that waits for the device, or no room; as it was, it may still run
                self.fast = self.record(self.score, x)
        self.seen[x.shape] += 1
