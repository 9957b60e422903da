"""Batches of items as tensors: arrays as they are, pictures decoded or copied from the cache ahead by threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.data.cache import Cache
from spml.data.pictures import decode, resize
from spml.data.table import LabelTable
from spml.errors import DataError

Rows = npt.NDArray[np.int64]
OnError = Callable[[int, DataError], None]
Batch = tuple[Tensor, Rows]
Ready = tuple[Tensor, dict[int, DataError]]  # pictures of a batch, and why those of other rows are not there
AHEAD = 4  # batches being made ready while one is used


class Feed:
    """The items of a table as batches: float features (B, D) or uint8 pictures (B, 3, H, W).

    Decoding releases the interpreter's lock, so threads are enough, and no process holds a copy of the labels.

    Args:
        table: its `x`, or the files its items name.
        size: height and width of pictures; None leaves arrays at their own size.
        upright: turn pictures as their EXIF orientation says.
        threads: that decode; as many as there are cores when None.
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
        self.threads = threads or os.cpu_count() or 1
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
        elif self.cached is not None and self.cached.resident is not None:
            for rows in order:
                yield self.cached.batch(rows)[0], rows
        else:
            yield from self._ahead(order, on_error)

    def in_order(self, batch_size: int, on_error: OnError | None = None) -> Iterator[Batch]:
        """All items once, in the table's order."""
        starts = range(0, len(self.table), batch_size)
        order = (np.arange(start, min(start + batch_size, len(self.table))) for start in starts)
        return self.batches(order, on_error)

    def _ahead(self, order: Iterable[Rows], on_error: OnError | None) -> Iterator[Batch]:
        """Batches that threads make ready while earlier ones are used."""
        with ThreadPoolExecutor(self.threads) as pool:  # torch.set_num_threads in them would be for the whole process
            pending: deque[tuple[Rows, Callable[[], Ready]]] = deque()
            try:
                for rows in order:
                    pending.append((rows, self._begin(pool, rows)))
                    if len(pending) > AHEAD:
                        yield from _good(*pending.popleft(), on_error)
                while pending:
                    yield from _good(*pending.popleft(), on_error)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self, pool: ThreadPoolExecutor, rows: Rows) -> Callable[[], Ready]:
        """Hand the rows to the threads; what it gives waits for them."""
        if self.cached is not None:
            return pool.submit(self.cached.batch, rows).result
        return partial(_stack, rows, [pool.submit(self._picture, int(row)) for row in rows])

    def _picture(self, row: int) -> Tensor:
        path = Path(self.table.items[row])
        path = path if self.table.root is None else self.table.root / path
        try:
            return decode(path, self.size, upright=self.upright)
        except DataError as error:
            raise DataError(f"{self.table.where(row)}{error}") from error.__cause__


def _stack(rows: Rows, pictures: list[Future[Tensor]]) -> Ready:
    good: list[Tensor] = []
    errors: dict[int, DataError] = {}
    for row, picture in zip(rows, pictures, strict=True):
        try:
            good.append(picture.result())
        except DataError as error:
            errors[int(row)] = error
    return torch.stack(good) if good else torch.empty(0), errors


def _good(rows: Rows, ready: Callable[[], Ready], on_error: OnError | None) -> Iterator[Batch]:
    x, errors = ready()
    for row, error in errors.items():
        if on_error is None:
            raise error
        on_error(row, error)
    if len(x):
        yield x, rows[[int(row) not in errors for row in rows]] if errors else rows
