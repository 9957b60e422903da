"""A cache of decoded pictures: each is decoded once, at the training size, for all runs."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.data.images.build import Build, Progress
from spml.data.images.decode import channels_first, channels_last, decode
from spml.data.images.store import (
    Pixels,
    Pool,
    Record,
    default_folder,
    explained,
    format_bytes,
    free_memory,
    path_of,
)
from spml.data.table import LabelTable
from spml.errors import DataError, UserError
from spml.machine import decoders

Mode = Literal["none", "disk", "memory", "device"]
Rows = npt.NDArray[np.int64]
DEVICE_SHARE, MEMORY_SHARE = 0.6, 0.8  # of the free memory; training needs the rest


@dataclass(frozen=True)
class Cache:
    """The decoded pictures of some tables; leaving its context closes it.

    `build` decodes the pictures that the pool still lacks.
    """

    pool: Pool
    mode: Mode
    device: torch.device
    progress: Progress
    build: Build | None = None
    _tables: dict[int, Pictures] = field(default_factory=dict)

    def pictures(self, table: LabelTable) -> Pictures:
        """Return the pictures of a table of this cache; tables of the same files share them."""
        files = hash((str(table.root), *table.items))
        if files not in self._tables:
            self._tables[files] = Pictures(self, table)
        return self._tables[files]

    def record(self, table: LabelTable, row: int) -> Record | None:
        """Return the record of a row's file; None if it is not decoded yet, or no file."""
        if table.x is not None:
            return None
        path = path_of(table, row)
        decoded = None if self.build is None else self.build.records.get(path)
        return decoded or self.pool.files.get(path)

    def finish(self) -> None:
        """Wait until all pictures are decoded; raise DataError as `open_cache` does."""
        if self.build is not None:
            self.build.finish()

    def close(self) -> None:
        """Stop decoding after the pictures in progress; decoded pictures stay readable."""
        if self.build is not None:
            self.build.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass
class Staged:
    """A batch on its way to the device."""

    rows: Rows
    lacking: Rows  # whose pictures are not on the device yet
    host: Tensor  # buffer for the lacking pictures
    errors: dict[int, DataError] = field(default_factory=dict)  # of pictures, by row


class Pictures:
    """Batches of a table's pictures: from the mapped file, a copy in memory or on the device.

    A picture is copied to memory or to the device when it is first read. Worker threads may call
    `read`; `stage` and `send`, which touch the device and pinned memory, run in the calling thread.
    """

    def __init__(self, cache: Cache, table: LabelTable) -> None:
        self.cache, self.table = cache, table
        self.pool, self.build, self.device = cache.pool, cache.build, cache.device
        self.records = [self._known(row) for row in range(len(table))]
        self.checked = np.zeros(len(table), bool)
        self._state = self.pool.state()
        self._reported = 0  # damaged pictures
        self.copied = np.zeros(len(table), bool)  # to memory or to the device
        self.memory: Pixels | None = None
        self.resident: Tensor | None = None
        self.complete = False  # whether all pictures are on the device
        self._mutex = threading.Lock()
        self._stream: torch.cuda.Stream | None = None  # for copies to the device
        self._last_copy: torch.cuda.Event | None = None
        if self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            self._last_copy = torch.cuda.Event()  # type: ignore[no-untyped-call]
        shape = (len(table), *self.pool.shape)
        if cache.mode == "device" and self.device.type != "cpu":
            if self._fits(self.device):
                self.resident = torch.empty(shape, dtype=torch.uint8, device=self.device)
        elif cache.mode != "disk" and self._fits(torch.device("cpu")):
            # Filled, so that the system gives the memory now and counts it as taken.
            self.memory = np.full(shape, 0, np.uint8)

    def stage(self, rows: Rows) -> Staged:
        """Allocate a buffer for the pictures of a batch that are not on the device."""
        lacking = rows if self.resident is None else rows[~self.copied[rows]]
        shape = (len(lacking), *self.pool.shape)
        pinned = self.device.type == "cuda" and len(lacking) > 0
        return Staged(rows, lacking, torch.empty(shape, dtype=torch.uint8, pin_memory=pinned))

    def read(
        self, rows: Rows, out: Pixels, cancelled: Callable[[], bool] | None = None
    ) -> dict[int, DataError]:
        """Copy pictures to `out`, waiting for those in decoding; return the errors by row."""
        errors: dict[int, DataError] = {}
        self._locate(rows, cancelled)
        if (state := self.pool.state()) != self._state:  # perhaps overwritten
            self.checked[:], self._state = False, state
        for row, pixels in zip(rows.tolist(), out, strict=True):
            if self.memory is not None and self.copied[row]:
                pixels[...] = self.memory[row]  # numpy copies in this thread only, torch in many
                continue
            record = self.records[row]
            assert record is not None  # `_locate` waited for it
            try:
                if not self.pool.read_slot(record.slot, pixels):
                    pixels[...] = self._decode_again(row, record).numpy()
                elif not self.checked[row]:
                    self._check(row, record, pixels)
            except DataError as error:
                errors[row] = error
                continue
            if self.memory is not None:
                self.memory[row] = pixels
                self.copied[row] = True
        return errors

    def send(self, staged: Staged) -> Tensor:
        """Return the pictures (B, 3, size, size) of a batch on the device, after `read`."""
        rows, lacking, host, errors = staged.rows, staged.lacking, staged.host, staged.errors
        if errors:
            readable = [row not in errors for row in lacking.tolist()]
            lacking, host = lacking[readable], host[readable]
            rows = rows[[row not in errors for row in rows.tolist()]]
        sent = self._to_device(host)
        if self.resident is None:
            return channels_first(sent)
        with self._mutex:  # orders the copies if several streams send batches
            self.wait_for_copies()
            if len(lacking):
                self.resident.index_copy_(0, self.index(lacking), sent)
                self.copied[lacking] = True
                self.complete = bool(self.copied.all())
                if self._last_copy is not None:
                    self._last_copy.record(torch.cuda.current_stream(self.device))
        if len(lacking) == len(rows):
            return channels_first(sent)
        return channels_first(self.resident.index_select(0, self.index(rows)))

    def index(self, rows: Rows) -> Tensor:
        """Return row numbers on the device."""
        numbers = torch.from_numpy(rows)
        if self.device.type == "cuda":  # torch reuses pinned memory only after its copy has ended
            return numbers.pin_memory().to(self.device, non_blocking=True)
        return numbers.to(self.device)

    def wait_for_copies(self) -> None:
        """Make the current stream wait for the copies to the device."""
        if self._last_copy is not None:
            self._last_copy.wait(torch.cuda.current_stream(self.device))

    def _to_device(self, host: Tensor) -> Tensor:
        """Copy to the device in a separate stream, in parallel to the computation."""
        if self._stream is None or not len(host):
            return host.to(self.device)
        stream = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._stream):
            sent = host.to(self.device, non_blocking=True)
        stream.wait_stream(self._stream)
        sent.record_stream(stream)
        return sent

    def _known(self, row: int) -> Record | None:
        """Return the record of a row's file; None while it is not decoded."""
        path = path_of(self.table, row)
        if self.build is not None and path in self.build.places:
            return self.build.records.get(path)
        return self.pool.files[path]

    def _locate(self, rows: Rows, cancelled: Callable[[], bool] | None) -> None:
        """Look up the slots of the rows; wait until their pictures are decoded."""
        unknown = [row for row in rows.tolist() if self.records[row] is None]
        if self.build is not None and unknown:
            records = self.build.wait([path_of(self.table, row) for row in unknown], cancelled)
            for row, record in zip(unknown, records, strict=True):
                self.records[row] = record

    def _check(self, row: int, record: Record, pixels: Pixels) -> None:
        """Compare pixels with their checksum; replace damaged ones."""
        if zlib.crc32(pixels.data) != record.checksum:
            pixels[...] = self._decode_again(row, record).numpy()
        else:
            self.checked[row] = True

    def _decode_again(self, row: int, record: Record) -> Tensor:
        """Decode a picture whose slot is damaged, and repair the slot if possible."""
        path = path_of(self.table, row)
        self._reported += 1
        if self._reported == 1:
            self.cache.progress.line(f"cache: {path} is damaged in the cache and is decoded again")
        elif self._reported == 2:
            self.cache.progress.line("cache: so are others, which are not named")
        try:
            picture = decode(Path(path), self.pool.shape[0])
        except DataError as error:
            raise DataError(f"{self.table.where(row)}{error}") from error
        pixels = channels_last(picture).contiguous()
        with suppress(OSError):  # the cache may be read-only
            self.pool.mend(record, pixels.numpy())
        return pixels

    def _fits(self, device: torch.device) -> bool:
        """Return whether a copy of the table's pictures fits on the device; print the decision."""
        size = len(self.table) * self.pool.slot_bytes
        free = free_memory(device)
        share = DEVICE_SHARE if device.type == "cuda" else MEMORY_SHARE
        if free is not None and size > share * free:
            left = format_bytes(free)
            reason = f"{format_bytes(size)} do not fit well in the {left} that are free"
            if device.type == "cpu":
                raise UserError(f"cache in memory: {reason}; give --cache disk")
            self.cache.progress.line(f"cache: {reason} on {device}; pictures are read from disk")
            return False
        place = "memory" if device.type == "cpu" else device
        self.cache.progress.line(f"cache: {format_bytes(size)} copied to {place}")
        return True


def open_cache(
    tables: Sequence[LabelTable],
    size: int | None,
    mode: Mode | None = None,
    *,
    folder: Path | None = None,
    device: torch.device | str = "cpu",
    threads: int | None = None,
    progress: Progress | None = None,
    background: bool = False,
    first: Sequence[tuple[LabelTable, npt.ArrayLike]] = (),
) -> Cache | None:
    """Open a cache of every picture of the tables; decode missing pictures now or in background.

    Args:
        tables: of picture files; arrays need no cache.
        size: height and width of the pictures.
        mode: disk maps the file, memory and device copy it there, none returns None.
        folder: of the cache; $SPML_CACHE or ~/.cache/spml when None.
        device: device that trains.
        threads: decoding threads; when None, one per core up to eight, one less in the background.
        progress: receives lines and progress.
        background: decode while the caller continues; a batch waits for its own pictures, which
            are decoded next. The caller closes the cache.
        first: rows of the tables in the order of their use; other rows follow in table order.

    Raises:
        DataError: pictures cannot be decoded; names the first and counts the others. In the
            background, batches with such a picture and `Cache.finish` raise it after all decoding.
    """
    places = {
        path_of(table, row): (table, row)
        for table in tables
        if table.x is None
        for row in range(len(table))
    }
    if mode == "none" or size is None or not places:
        return None
    progress = Progress() if progress is None else progress
    pool = Pool(folder or default_folder(), size)
    with explained(pool.folder):
        pool.load()
    lacking = pool.missing(places)
    progress.line(pool.summary(len(places), len(lacking), background=background))

    build: Build | None = None
    if lacking:
        wanted = [path_of(table, row) for table, rows in first for row in np.asarray(rows).tolist()]
        build = Build(
            pool,
            {path: places[path] for path in lacking},
            dict.fromkeys([*wanted, *lacking]),
            threads=threads or decoders(spared=int(background)),
            progress=progress,
        )
        if background:
            build.start()
        else:
            build.run()
            build.check()
            build = None
            pool.load()
    return Cache(pool, mode or "disk", torch.device(device), progress, build)
