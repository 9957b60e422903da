"""Batches of items as tensors: arrays as they are, pictures decoded ahead by threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.data.pictures import decode, resize
from spml.data.table import LabelTable
from spml.errors import DataError

Rows = npt.NDArray[np.int64]
OnError = Callable[[int, DataError], None]
AHEAD = 4  # batches being decoded while one is used


class Feed:
    """The items of a table as batches: float features (B, D) or uint8 pictures (B, 3, H, W).

    Decoding releases the interpreter's lock, so threads are enough, and no process holds a copy of the labels.

    Args:
        table: its `x`, or the files its items name.
        size: height and width of pictures; None leaves arrays at their own size.
        upright: turn pictures as their EXIF orientation says.
        threads: that decode; as many as there are cores when None.
    """

    def __init__(
        self, table: LabelTable, size: int | None, *, upright: bool = True, threads: int | None = None
    ) -> None:
        self.table, self.size, self.upright = table, size, upright
        self.threads = threads or os.cpu_count() or 1
        self.x = None if table.x is None else torch.from_numpy(np.ascontiguousarray(table.x))
        if self.x is None and size is None:
            raise DataError("pictures of different sizes cannot be batched; give --size")

    def __len__(self) -> int:
        return len(self.table)

    def batches(self, order: Iterable[Rows], on_error: OnError | None = None) -> Iterator[tuple[Tensor, Rows]]:
        """For each array of rows, the items and the rows.

        Args:
            order: rows of each batch.
            on_error: told of each picture that cannot be read, which is then left out; without it, it is raised.
        """
        if self.x is not None:
            for rows in order:
                x = self.x[torch.from_numpy(rows)]
                yield (resize(x, self.size) if self.size and x.ndim == 4 else x), rows
            return
        with ThreadPoolExecutor(self.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            pending: deque[tuple[Rows, list[Future[Tensor]]]] = deque()
            try:
                for rows in order:
                    pending.append((rows, [pool.submit(self._picture, int(row)) for row in rows]))
                    if len(pending) > AHEAD:
                        yield from _stack(*pending.popleft(), on_error)
                while pending:
                    yield from _stack(*pending.popleft(), on_error)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def in_order(self, batch_size: int, on_error: OnError | None = None) -> Iterator[tuple[Tensor, Rows]]:
        """All items once, in the table's order."""
        starts = range(0, len(self.table), batch_size)
        order = (np.arange(start, min(start + batch_size, len(self.table))) for start in starts)
        return self.batches(order, on_error)

    def _picture(self, row: int) -> Tensor:
        path = Path(self.table.items[row])
        path = path if self.table.root is None else self.table.root / path
        try:
            return decode(path, self.size, upright=self.upright)
        except DataError as error:
            raise DataError(f"{self.table.where(row)}{error}") from error.__cause__


def _stack(rows: Rows, pictures: list[Future[Tensor]], on_error: OnError | None) -> Iterator[tuple[Tensor, Rows]]:
    good, kept = [], []
    for row, picture in zip(rows, pictures, strict=True):
        try:
            good.append(picture.result())
            kept.append(row)
        except DataError as error:
            if on_error is None:
                raise
            on_error(int(row), error)
    if good:
        yield torch.stack(good), np.array(kept)
