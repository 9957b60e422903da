"""Batches of items that threads make ready while the model works on earlier ones, and the model's answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from spml.data.images.decode import channels_first, decode, resize
from spml.data.readers.builder import OnError, report
from spml.errors import DataError
from spml.machine import decoders
from spml.use.predict.inputs import Item

AHEAD = 4  # batches being made ready while one is used
MOST = 512  # items in them, beyond two batches
BEGUN = 2  # batches that a GPU has been given while what became of an earlier one is written
IN_A_ROW = 8  # pictures, at most, that a thread decodes before it asks for more: asking takes time from all

Batch = tuple[list[Item], Tensor]
Errors = list[DataError | None]
Before = Callable[[tuple[int, ...]], None]


@dataclass(frozen=True)
class Ahead:
    """Items as batches of tensors; no more than a few batches are read, decoded or kept at a time.

    Attributes:
        size: height and width of pictures; None for feature vectors.
        upright: turn pictures as their EXIF orientation says.
        batch_size: items at a time.
        threads: that decode; as many as there are cores when None, up to eight.
        pinned: in memory that a GPU copies from while the processor goes on.
    """

    size: int | None
    upright: bool = True
    batch_size: int = 32
    threads: int | None = None
    pinned: bool = False

    @property
    def look_ahead(self) -> int:
        """Items that are taken from the source before the first batch is given."""
        return self.batch_size * (1 + max(2, min(AHEAD, MOST // self.batch_size)))

    def batches(
        self, items: Iterable[Item], on_error: OnError | None = None, before: Before | None = None
    ) -> Iterator[Batch]:
        """The items that can be read, in order, with their tensors.

        Args:
            items: taken as they are needed.
            on_error: told of each that cannot be read, which is then left out; without it, it is raised.
            before: told the shape of a full batch of pictures, if there will be one, before any thread decodes.
        """
        source = iter(items)
        with ThreadPoolExecutor(self._threads) as pool:
            pending: deque[tuple[list[Item], Tensor, list[Future[Errors]]]] = deque()
            try:
                while group := list(islice(source, self.batch_size)):
                    if (
                        before is not None
                        and self.size is not None
                        and len(group) == self.batch_size
                    ):
                        before((self.batch_size, 3, self.size, self.size))
                    before = None
                    pending.append((group, *self._begin(pool, group)))
                    if len(pending) * self.batch_size >= self.look_ahead:
                        yield from _good(*pending.popleft(), on_error)
                while pending:
                    yield from _good(*pending.popleft(), on_error)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    @property
    def _threads(self) -> int:
        return self.threads or decoders()

    def _begin(
        self, pool: ThreadPoolExecutor, group: list[Item]
    ) -> tuple[Tensor, list[Future[Errors]]]:
        if self.size is None:
            return torch.from_numpy(np.stack([item.x for item in group if item.x is not None])), []
        pixels = torch.empty(
            len(group), self.size, self.size, 3, dtype=torch.uint8, pin_memory=self.pinned
        )
        x = channels_first(pixels)
        part = max(1, min(IN_A_ROW, self.batch_size // self._threads))
        starts = range(0, len(group), part)
        return x, [pool.submit(self._fill, group[i : i + part], x[i : i + part]) for i in starts]

    def _fill(self, items: list[Item], out: Tensor) -> Errors:
        """Decode the items to their places; of each, what was wrong with it."""
        return [self._fill_one(item, place) for item, place in zip(items, out, strict=True)]

    def _fill_one(self, item: Item, out: Tensor) -> DataError | None:
        assert self.size is not None
        try:
            if item.path is not None:
                picture = decode(item.path, self.size, upright=self.upright)
            else:
                picture = resize(torch.from_numpy(np.ascontiguousarray(item.x)), self.size)
            np.copyto(
                out.numpy(), picture.numpy()
            )  # torch would share the copy among threads of its own
        except DataError as error:
            wrong = DataError(f"{item.where}{error}")
            wrong.__cause__ = error.__cause__
            return wrong
        return None


def _good(
    group: list[Item], x: Tensor, filling: list[Future[Errors]], on_error: OnError | None
) -> Iterator[Batch]:
    errors = [error for filled in filling for error in filled.result()]
    for error in errors:
        if error is not None:
            report(error, on_error)
    if any(errors):
        left = [i for i, error in enumerate(errors) if error is None]
        group, x = [group[i] for i in left], x[left]
    if group:
        yield group, x


def answers(
    score: Callable[[Tensor], Tensor], batches: Iterable[Batch], device: torch.device | str
) -> Iterator[tuple[list[Item], Tensor]]:
    """What `score` gives for each batch, on the CPU; a GPU has the next batches before the answer of one is given."""
    waiting: deque[tuple[list[Item], Tensor, torch.cuda.Event | None]] = deque()
    for group, x in batches:
        with torch.inference_mode():
            result = score(x.to(device, non_blocking=True))
        done = None
        if result.is_cuda:
            result = torch.empty_like(result, device="cpu", pin_memory=True).copy_(
                result, non_blocking=True
            )
            done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # who waits for it leaves its core to a thread that decodes
            done.record()
        waiting.append((group, result, done))
        if len(waiting) > (BEGUN if done is not None else 0):
            yield _arrived(*waiting.popleft())
    while waiting:
        yield _arrived(*waiting.popleft())


def _arrived(
    group: list[Item], result: Tensor, done: torch.cuda.Event | None
) -> tuple[list[Item], Tensor]:
    if done is not None:
        done.synchronize()
    return group, result
