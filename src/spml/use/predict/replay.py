"""A model on batches of one shape, recorded once on a GPU and then replayed: the host has one thing to start, not many.

Threads that decode share Python and the processor with the one that starts the model's kernels, hundreds for a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Tensor

FIRST = 2  # times that the model is run before it is recorded

Score = Callable[[Tensor], Tensor]


def record(score: Score, x: Tensor) -> Score:
    """The same for batches like this one, as a CUDA graph."""
    for _ in range(FIRST):
        score(x)
    graph, given = torch.cuda.CUDAGraph(), x.clone()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outcome = score(given)

    def replay(x: Tensor) -> Tensor:
        given.copy_(x)
        graph.replay()
        return outcome.clone()

    return replay


class Replayed:
    """Gives what `score` gives; batches of the shape that was prepared for are replayed, others run as they are.

    Args:
        score: from a batch on the device to what is wanted of it.
        device: on a GPU alone anything is recorded.
        record: makes a faster one for batches of one shape; where it cannot, all goes on without.
    """

    def __init__(
        self,
        score: Score,
        device: torch.device | str,
        record: Callable[[Score, Tensor], Score] = record,
    ) -> None:
        self.score, self.device, self.record = score, torch.device(device), record
        self.shape: torch.Size | None = None
        self.fast = score

    def prepare(self, shape: Sequence[int]) -> None:
        """Record for pictures in batches of this shape, before threads that decode take Python for themselves."""
        if self.device.type != "cuda":
            return
        with (
            suppress(Exception),
            torch.inference_mode(),
        ):  # a backbone that waits for the device, or no room
            x = torch.zeros(*shape, dtype=torch.uint8, device=self.device).to(
                memory_format=torch.channels_last
            )
            self.fast, self.shape = self.record(self.score, x), x.shape

    def __call__(self, x: Tensor) -> Tensor:
        """What `score` gives for the batch."""
        return self.fast(x) if x.shape == self.shape else self.score(x)
