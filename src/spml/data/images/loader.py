"""Batches of items as tensors: arrays as they are, pictures prefetched by threads.

`Feed` reads the rows of a table, `Stream` reads items that are not known in advance. Both decode or
copy pictures with the same threads and the same look-ahead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.data.images.cache import Cache
from spml.data.images.decode import channels_first, channels_last, decode, resize
from spml.data.readers.builder import report
from spml.data.table import LabelTable
from spml.errors import DataError
from spml.machine import decoders

Rows = npt.NDArray[np.int64]
OnError = Callable[[int, DataError], None]
BeforeDecoding = Callable[[tuple[int, ...]], None]
Ready = tuple[Tensor, list[DataError | None]]  # the readable items of a batch; the error of each
Group = TypeVar("Group", bound=Sized)
Result = TypeVar("Result")
PREFETCH = 4  # batches in preparation while one is used
MOST = 512  # items in these batches, beyond two batches
COPIED_AT_ONCE = 16  # pictures that a thread copies from the cache per task
DECODED_AT_ONCE = 8  # pictures, at most, that a thread decodes per task: each task costs GIL time


@dataclass(frozen=True, slots=True)
class Item:
    """A picture or feature vector to score: a file, or an array."""

    name: str  # in predictions
    path: Path | None = None
    x: npt.NDArray[Any] | None = None  # feature vector or uint8 picture (3, H, W)
    where: str = ""  # prefix of messages about the item

    @classmethod
    def of(cls, table: LabelTable, row: int) -> Item:
        """Return a row of a table."""
        if table.x is not None:
            return cls(f"{table.items[row]}", x=table.x[row])
        path = table.file(row)
        return cls(str(path), path, where=table.where(row))

    def picture(self, size: int | None = None) -> Tensor:
        """Return the picture (3, H, W), resized if a size is given.

        A DataError of a file that cannot be read names the item's place.
        """
        if self.path is None:
            picture = torch.from_numpy(np.ascontiguousarray(self.x))
            return picture if size is None else resize(picture, size)
        try:
            return decode(self.path, size)
        except DataError as error:
            raise DataError(f"{self.where}{error}") from error.__cause__


class Feed:
    """Batches of a table's items: float features (B, D) or uint8 pictures (B, 3, H, W).

    Pictures are stored channels last. Decoding releases the GIL, so threads suffice and no process
    holds a copy of the labels.

    Args:
        table: its `x`, or the files of its items.
        size: height and width of pictures; None keeps arrays at their own size.
        threads: decoding threads; one per core up to eight when None.
        cache: cache of this table and size; None decodes pictures at each use.
    """

    def __init__(
        self,
        table: LabelTable,
        size: int | None,
        *,
        threads: int | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.table, self.size = table, size
        self.threads = threads or decoders()
        self.x = None if table.x is None else torch.from_numpy(np.ascontiguousarray(table.x))
        if self.x is None and size is None:
            raise DataError("pictures of different sizes cannot be batched; give --size")
        self.cached = None if cache is None or self.x is not None else cache.pictures(table)

    def __len__(self) -> int:
        return len(self.table)

    def batches(
        self, order: Iterable[Rows], on_error: OnError | None = None
    ) -> Iterator[tuple[Tensor, Rows]]:
        """Yield the items and the rows of each batch.

        Args:
            order: rows of each batch.
            on_error: receives each picture that cannot be read, which is then left out; without
                it, the error is raised.
        """
        if self.x is not None:
            for rows in order:
                x = self.x[torch.from_numpy(rows)]
                yield (resize(x, self.size) if self.size and x.ndim == 4 else x), rows
        elif self.resident is not None:
            yield from self._select(self.resident, order)
        else:
            begin = self._begin_decoding if self.cached is None else self._begin_copying
            with closing(prefetch(order, begin, self.threads)) as prepared:
                for rows, (x, errors) in prepared:
                    for row, error in zip(rows.tolist(), errors, strict=True):
                        if error is not None:
                            report(error, on_error and partial(on_error, row))
                    if len(x):
                        yield x, rows[[error is None for error in errors]]

    def in_order(
        self, batch_size: int, on_error: OnError | None = None
    ) -> Iterator[tuple[Tensor, Rows]]:
        """Yield all items once, in the table's order."""
        starts = range(0, len(self.table), batch_size)
        order = (np.arange(start, min(start + batch_size, len(self.table))) for start in starts)
        return self.batches(order, on_error)

    @property
    def resident(self) -> Tensor | None:
        """All pictures on the device, (items, H, W, 3), after the first epoch in mode device."""
        return self.cached.resident if self.cached is not None and self.cached.complete else None

    def _select(self, resident: Tensor, order: Iterable[Rows]) -> Iterator[tuple[Tensor, Rows]]:
        """Select batches from the copy on the device; all row numbers are sent there at once."""
        batches = list(order)
        if self.cached is not None and batches:
            self.cached.wait_for_copies()
            numbers = self.cached.index(np.concatenate(batches))
            ends = np.cumsum([len(rows) for rows in batches]).tolist()
            for rows, index in zip(batches, numbers.tensor_split(ends[:-1]), strict=True):
                yield channels_first(resident.index_select(0, index)), rows

    def _begin_decoding(self, pool: Threads, rows: Rows) -> Callable[[], Ready]:
        assert self.size is not None
        return begin_decoding(pool, [Item.of(self.table, row) for row in rows.tolist()], self.size)

    def _begin_copying(self, pool: Threads, rows: Rows) -> Callable[[], Ready]:
        cached = self.cached
        assert cached is not None
        staged = cached.stage(rows)
        out = staged.host.numpy()
        starts = range(0, len(staged.lacking), COPIED_AT_ONCE)
        parts = [slice(start, start + COPIED_AT_ONCE) for start in starts]
        reading = [
            pool.submit(cached.read, staged.lacking[part], out[part], pool.cancelled.is_set)
            for part in parts
        ]

        def finish() -> Ready:
            for part in reading:
                staged.errors.update(part.result())
            return cached.send(staged), [staged.errors.get(row) for row in rows.tolist()]

        return finish


@dataclass(frozen=True)
class Stream:
    """Batches of a stream of items; only the batches of the look-ahead are in memory."""

    size: int | None  # height and width of pictures; None for feature vectors
    batch_size: int = 32
    threads: int | None = None  # one per core up to eight when None
    pinned: bool = False  # store pictures in memory from which a GPU copies asynchronously

    def batches(
        self,
        items: Iterable[Item],
        on_error: Callable[[DataError], None] | None = None,
        before: BeforeDecoding | None = None,
    ) -> Iterator[tuple[Tensor, list[Item]]]:
        """Yield the tensors of the readable items, and the items, in order.

        Args:
            items: read as they are needed.
            on_error: receives each item that cannot be read, which is then left out; without it,
                the error is raised.
            before: called with the shape of a full batch, if there is one, before any decoding.
        """
        groups = self._groups(iter(items), before)
        threads = self.threads or decoders()
        with closing(prefetch(groups, self._begin, threads)) as prepared:
            for group, (x, errors) in prepared:
                for error in filter(None, errors):
                    report(error, on_error)
                if len(x):
                    pairs = zip(group, errors, strict=True)
                    yield x, [item for item, error in pairs if error is None]

    def _groups(
        self, source: Iterator[Item], before: BeforeDecoding | None
    ) -> Iterator[list[Item]]:
        while group := list(islice(source, self.batch_size)):
            if before is not None and self.size is not None and len(group) == self.batch_size:
                before((self.batch_size, 3, self.size, self.size))
            before = None
            yield group

    def _begin(self, pool: Threads, group: list[Item]) -> Callable[[], Ready]:
        if self.size is None:
            vectors = np.stack([item.x for item in group if item.x is not None])
            return lambda: (torch.from_numpy(vectors), [None] * len(group))
        return begin_decoding(pool, group, self.size, pinned=self.pinned)


class Threads(ThreadPoolExecutor):
    """A pool of threads that prepare batches until `cancel` is called."""

    def __init__(self, count: int) -> None:
        # torch.set_num_threads within these threads would change the whole process.
        super().__init__(count)
        self.count = count
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        """End all tasks: pending ones are dropped, waiting ones stop."""
        self.cancelled.set()
        self.shutdown(wait=True, cancel_futures=True)


def prefetch(
    groups: Iterable[Group], begin: Callable[[Threads, Group], Callable[[], Result]], threads: int
) -> Generator[tuple[Group, Result]]:
    """Yield each group with its result, prepared by threads while earlier results are used.

    Groups are read as they are needed, `PREFETCH` batches or `MOST` items in advance. `begin` hands
    a group to the threads and returns a function that waits for the result.
    """
    with Threads(threads) as pool:
        pending: deque[tuple[Group, Callable[[], Result]]] = deque()
        try:
            for group in groups:
                pending.append((group, begin(pool, group)))
                while len(pending) > PREFETCH or (
                    len(pending) > 2 and sum(len(batch) for batch, _ in pending) > MOST
                ):
                    done, finish = pending.popleft()
                    yield done, finish()
            while pending:
                done, finish = pending.popleft()
                yield done, finish()
        finally:
            pool.cancel()


def begin_decoding(
    pool: Threads, items: Sequence[Item], size: int, *, pinned: bool = False
) -> Callable[[], Ready]:
    """Start to decode pictures to one buffer; return a function that waits for them."""
    shape = (len(items), size, size, 3)
    x = channels_first(torch.empty(shape, dtype=torch.uint8, pin_memory=pinned))
    part = max(1, min(DECODED_AT_ONCE, len(items) // pool.count))
    starts = range(0, len(items), part)
    filling = [pool.submit(_fill, items[i : i + part], x[i : i + part], size) for i in starts]

    def finish() -> Ready:
        errors = [error for filled in filling for error in filled.result()]
        if not any(errors):
            return x, errors
        readable = [i for i, error in enumerate(errors) if error is None]
        return channels_first(channels_last(x)[readable]), errors

    return finish


def _fill(items: Sequence[Item], out: Tensor, size: int) -> list[DataError | None]:
    """Decode items to their places; return the error of each, or None."""
    errors: list[DataError | None] = [None] * len(items)
    for i, (item, place) in enumerate(zip(items, out, strict=True)):
        try:
            picture = item.picture(size)
        except DataError as error:
            errors[i] = error
        else:  # torch would use threads of its own for the copy
            np.copyto(place.numpy(), picture.numpy())
    return errors
