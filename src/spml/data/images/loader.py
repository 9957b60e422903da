"""Batches of items as tensors: arrays as they are, pictures decoded or copied from the cache ahead by threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.data.images.cache import Cache
from spml.data.images.cached import Pictures, Staged
from spml.data.images.decode import channels_first, channels_last, decode, resize
from spml.data.table import LabelTable
from spml.errors import DataError
from spml.machine import decoders

Rows = npt.NDArray[np.int64]
OnError = Callable[[int, DataError], None]
Batch = tuple[Tensor, Rows]
Ready = tuple[
    Tensor, dict[int, DataError]
]  # pictures of a batch, and why those of other rows are not there
AHEAD = 4  # batches being made ready while one is used
MOST = 512  # pictures in them, beyond two batches
PART = 16  # pictures of a batch that a thread copies at a time


class Feed:
    """The items of a table as batches: float features (B, D) or uint8 pictures (B, 3, H, W), in memory channels last.

    Decoding releases the interpreter's lock, so threads are enough, and no process holds a copy of the labels.

    Args:
        table: its `x`, or the files its items name.
        size: height and width of pictures; None leaves arrays at their own size.
        upright: turn pictures as their EXIF orientation says.
        threads: that decode; as many as there are cores when None, up to eight.
        cache: opened with this table, size and `upright`, to take decoded pictures from; None decodes each time.
    """

    def __init__(
        self,
        table: LabelTable,
        size: int | None,
        *,
        upright: bool = True,
        threads: int | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.table, self.size, self.upright = table, size, upright
        self.threads = threads or decoders()
        self.x = None if table.x is None else torch.from_numpy(np.ascontiguousarray(table.x))
        if self.x is None and size is None:
            raise DataError("pictures of different sizes cannot be batched; give --size")
        self.cached = None if cache is None or self.x is not None else cache.pictures(table)

    def __len__(self) -> int:
        return len(self.table)

    def batches(self, order: Iterable[Rows], on_error: OnError | None = None) -> Iterator[Batch]:
        """For each array of rows, the items and the rows.

        Args:
            order: rows of each batch.
            on_error: told of each picture that cannot be read, which is then left out; without it, it is raised.
        """
        if self.x is not None:
            for rows in order:
                x = self.x[torch.from_numpy(rows)]
                yield (resize(x, self.size) if self.size and x.ndim == 4 else x), rows
        elif self.resident is not None:
            yield from self._selected(self.resident, order)
        else:
            yield from self._ahead(order, on_error)

    def in_order(self, batch_size: int, on_error: OnError | None = None) -> Iterator[Batch]:
        """All items once, in the table's order."""
        starts = range(0, len(self.table), batch_size)
        order = (np.arange(start, min(start + batch_size, len(self.table))) for start in starts)
        return self.batches(order, on_error)

    @property
    def resident(self) -> Tensor | None:
        """All pictures on the device, (items, H, W, 3), once they are there: cache mode device, after an epoch."""
        return self.cached.resident if self.cached is not None and self.cached.complete else None

    def _selected(self, resident: Tensor, order: Iterable[Rows]) -> Iterator[Batch]:
        """Batches out of the copy on the device, to which the numbers of all rows go at once."""
        batches = list(order)
        if self.cached is not None and batches:
            self.cached.wait_for_copies()
            numbers = self.cached.index(np.concatenate(batches))
            ends = np.cumsum([len(rows) for rows in batches]).tolist()
            for rows, index in zip(batches, numbers.tensor_split(ends[:-1]), strict=True):
                yield channels_first(resident.index_select(0, index)), rows

    def _ahead(self, order: Iterable[Rows], on_error: OnError | None) -> Iterator[Batch]:
        """Batches that threads make ready while earlier ones are used."""
        gone = threading.Event()
        with ThreadPoolExecutor(
            self.threads
        ) as pool:  # torch.set_num_threads in them would be for the whole process
            pending: deque[tuple[Rows, Callable[[], Ready]]] = deque()
            try:
                for rows in order:
                    pending.append((rows, self._begin(pool, rows, gone.is_set)))
                    while len(pending) > AHEAD or (len(pending) > 2 and _count(pending) > MOST):
                        yield from _good(*pending.popleft(), on_error)
                while pending:
                    yield from _good(*pending.popleft(), on_error)
            finally:
                gone.set()
                pool.shutdown(wait=True, cancel_futures=True)

    def _begin(
        self, pool: ThreadPoolExecutor, rows: Rows, gone: Callable[[], bool]
    ) -> Callable[[], Ready]:
        """Hand the rows to the threads; what it gives waits for them."""
        if self.cached is None:
            return partial(_stack, rows, [pool.submit(self._picture, int(row)) for row in rows])
        staged = self.cached.stage(rows)
        parts = [slice(start, start + PART) for start in range(0, len(staged.lacking), PART)]
        out = staged.host.numpy()
        reading = [
            pool.submit(self.cached.read, staged.lacking[part], out[part], gone) for part in parts
        ]
        return partial(_sent, self.cached, staged, reading)

    def _picture(self, row: int) -> Tensor:
        try:
            return decode(self.table.file(row), self.size, upright=self.upright)
        except DataError as error:
            raise DataError(f"{self.table.where(row)}{error}") from error.__cause__


def _count(pending: deque[tuple[Rows, Callable[[], Ready]]]) -> int:
    return sum(len(rows) for rows, _ in pending)


def _sent(cached: Pictures, staged: Staged, reading: list[Future[dict[int, DataError]]]) -> Ready:
    for part in reading:
        staged.errors.update(part.result())
    return cached.send(staged), staged.errors


def _stack(rows: Rows, pictures: list[Future[Tensor]]) -> Ready:
    good: list[Tensor] = []
    errors: dict[int, DataError] = {}
    for row, picture in zip(rows, pictures, strict=True):
        try:
            good.append(picture.result())
        except DataError as error:
            errors[int(row)] = error
    return channels_first(torch.stack(list(map(channels_last, good)))) if good else torch.empty(
        0
    ), errors


def _good(rows: Rows, ready: Callable[[], Ready], on_error: OnError | None) -> Iterator[Batch]:
    x, errors = ready()
    for row, error in errors.items():
        if on_error is None:
            raise error
        on_error(row, error)
    if len(x):
        yield x, rows[[int(row) not in errors for row in rows]] if errors else rows
