"""The cached pictures of a table: from the mapped file, a copy in memory, or a copy on the device."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.data.images.decode import channels_first, channels_last, decode
from spml.data.images.store import Pixels, Pool, Record
from spml.data.table import LabelTable
from spml.errors import DataError, UserError

if TYPE_CHECKING:
    from spml.data.images.build import Build

Mode = Literal["none", "disk", "memory", "device"]
Rows = npt.NDArray[np.int64]
DEVICE_SHARE, MEMORY_SHARE = 0.6, 0.8  # of what is free: training needs the rest


class Teller(Protocol):
    """Where lines and progress go."""

    def line(self, text: str) -> None:
        """A line that stays."""

    def begin(self, what: str, total: int) -> None:
        """Start a bar over `total` items."""

    def advance(self, count: int) -> None:
        """So many more are done."""


@dataclass
class Staged:
    """A batch on its way to the device.

    Attributes:
        rows: of the batch.
        lacking: those of them whose pictures are not on the device.
        host: their pictures, to be read.
        errors: why some cannot be.
    """

    rows: Rows
    lacking: Rows
    host: Tensor
    errors: dict[int, DataError] = field(default_factory=dict)


class Pictures:
    """Batches of a table's pictures from a pool that holds them all, or soon will.

    Copies in memory or on the device are made of each picture when it is first asked for. Worker threads may `read`;
    all that touches the device, pinned memory included, is done by those who call `stage` and `send`.

    Args:
        pool: with its index read.
        table: of picture files.
        mode: disk, memory or device.
        device: that trains.
        upright: as the pool's pictures are.
        tell: of what is copied and what was damaged.
        build: that decodes what the pool lacks.
        promised: bytes of memory that other tables' copies will still take.
    """

    def __init__(
        self,
        pool: Pool,
        table: LabelTable,
        mode: Mode,
        device: torch.device,
        *,
        upright: bool,
        tell: Teller,
        build: Build | None = None,
        promised: int = 0,
    ) -> None:
        self.pool, self.table, self.device, self.upright, self.tell = (
            pool,
            table,
            device,
            upright,
            tell,
        )
        self.build = build
        self.records = [self._known(row) for row in range(len(table))]
        self.slots = np.array(
            [-1 if record is None else record.slot for record in self.records], np.int64
        )
        self.checked = np.zeros(len(table), bool)
        self.copied = np.zeros(len(table), bool)  # to memory or to the device
        self.memory: Pixels | None = None
        self.resident: Tensor | None = None
        self.complete = False  # whether all pictures are on the device
        self._mapped: Pixels = np.empty((0, *pool.shape), np.uint8)
        self._mutex = threading.Lock()
        on_device = mode == "device" and device.type != "cpu"
        self._stream: torch.cuda.Stream | None = None  # of copies to the device
        self._last_copy: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._last_copy = torch.cuda.Event()  # type: ignore[no-untyped-call]
        if on_device and self._fits(device, 0):
            self.resident = torch.empty((len(table), *pool.shape), dtype=torch.uint8, device=device)
        elif (
            mode in ("memory", "device")
            and not on_device
            and self._fits(torch.device("cpu"), promised)
        ):
            self.memory = np.empty((len(table), *pool.shape), np.uint8)

    @property
    def promised(self) -> int:
        """Bytes of memory that the copy will still take."""
        return (
            0 if self.memory is None else int(np.count_nonzero(~self.copied)) * self.pool.slot_bytes
        )

    def stage(self, rows: Rows) -> Staged:
        """Room for those pictures of a batch that must be read."""
        lacking = rows if self.resident is None else rows[~self.copied[rows]]
        shape, pinned = (
            (len(lacking), *self.pool.shape),
            self.device.type == "cuda" and len(lacking) > 0,
        )
        return Staged(rows, lacking, torch.empty(shape, dtype=torch.uint8, pin_memory=pinned))

    def read(
        self, rows: Rows, out: Pixels, gone: Callable[[], bool] | None = None
    ) -> dict[int, DataError]:
        """Write the pictures of the rows to `out`; why some cannot be read. Waits for those that are not yet decoded.

        Args:
            rows: of the table.
            out: uint8 (rows, size, size, 3).
            gone: whether nobody wants them any more, which ends the waiting.
        """
        errors: dict[int, DataError] = {}
        self._find(rows, gone)
        for row, pixels in zip(rows.tolist(), out, strict=True):
            if self.memory is not None and self.copied[row]:
                pixels[...] = self.memory[row]  # by numpy, which uses this thread alone
                continue
            pixels[...] = self._slot(self.slots[row])
            try:
                if not self.checked[row]:
                    self._check(row, pixels)
            except DataError as error:
                errors[row] = error
                continue
            if self.memory is not None:
                self.memory[row] = pixels
                self.copied[row] = True
        return errors

    def send(self, staged: Staged) -> Tensor:
        """The pictures (B, 3, size, size) of a batch on the device, once those it lacked are read."""
        rows, lacking, host, errors = staged.rows, staged.lacking, staged.host, staged.errors
        if errors:
            good = [row not in errors for row in lacking.tolist()]
            lacking, host = lacking[good], host[good]
            rows = rows[[row not in errors for row in rows.tolist()]]
        sent = self._to_device(host)
        if self.resident is None:
            return channels_first(sent)
        with self._mutex:  # copies of several streams, if there are several, follow each other
            self.wait_for_copies()
            if len(lacking):
                self.resident.index_copy_(0, self.index(lacking), sent)
                self.copied[lacking] = True
                self.complete = bool(self.copied.all())
                if self._last_copy is not None:
                    self._last_copy.record(torch.cuda.current_stream(self.device))
        return channels_first(
            sent if len(lacking) == len(rows) else self.resident.index_select(0, self.index(rows))
        )

    def index(self, rows: Rows) -> Tensor:
        """Row numbers on the device."""
        numbers = torch.from_numpy(rows)
        if self.device.type == "cuda":  # a pinned tensor is not used anew before its copy is done
            return numbers.pin_memory().to(self.device, non_blocking=True)
        return numbers.to(self.device)

    def wait_for_copies(self) -> None:
        """Let the current stream come after what was copied to the device."""
        if self._last_copy is not None:
            self._last_copy.wait(torch.cuda.current_stream(self.device))

    def _to_device(self, host: Tensor) -> Tensor:
        """A copy on the device, made beside what is computed there."""
        if self._stream is None or not len(host):
            return host.to(self.device)
        stream = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._stream):
            sent = host.to(self.device, non_blocking=True)
        stream.wait_stream(self._stream)
        sent.record_stream(stream)
        return sent

    def _known(self, row: int) -> Record | None:
        """The record of a row's file; None while it is not decoded."""
        path = path_of(self.table, row)
        if self.build is not None and path in self.build.places:
            return self.build.found.get(path)
        return self.pool.files[path]

    def _find(self, rows: Rows, gone: Callable[[], bool] | None) -> None:
        """Learn where the pictures of the rows are, which waits until they are decoded."""
        unknown = rows[self.slots[rows] < 0]
        if self.build is not None and len(unknown):
            records = self.build.wait([path_of(self.table, row) for row in unknown.tolist()], gone)
            for row, record in zip(unknown.tolist(), records, strict=True):
                self.records[row], self.slots[row] = record, record.slot

    def _slot(self, slot: int) -> Pixels:
        """A slot of the file, which grows while pictures are decoded."""
        mapped = self._mapped
        if slot >= len(mapped):
            mapped = self._mapped = self.pool.view()
        pixels: Pixels = mapped[slot]
        return pixels

    def _check(self, row: int, pixels: Pixels) -> None:
        """Put right what the cache does not hold as it was written."""
        record = self.records[row]
        if record is not None and zlib.crc32(pixels.data) != record.checksum:
            pixels[...] = self._again(row, record).numpy()
        else:
            self.checked[row] = True

    def _again(self, row: int, record: Record) -> Tensor:
        """The pixels of a picture whose slot is damaged, which is mended if that can be done."""
        path = path_of(self.table, row)
        self.tell.line(f"cache: {path} is damaged in the cache and is decoded again")
        try:
            picture = channels_last(
                decode(Path(path), self.pool.shape[0], upright=self.upright)
            ).contiguous()
        except DataError as error:
            raise DataError(f"{self.table.where(row)}{error}") from error
        with suppress(OSError):  # the cache may be another's, to read only
            self.pool.mend(record, picture.numpy())
        return picture

    def _fits(self, device: torch.device, promised: int) -> bool:
        """Whether there is room for a copy of the table's pictures where they are used."""
        size, free = len(self.table) * self.pool.slot_bytes, free_memory(device)
        share = DEVICE_SHARE if device.type == "cuda" else MEMORY_SHARE
        if free is not None and size > share * (free - promised):
            room = f"{in_words(size)} do not fit well in the {in_words(max(free - promised, 0))} that are free"
            if device.type == "cpu":
                raise UserError(f"cache in memory: {room}; give --cache disk")
            self.tell.line(f"cache: {room} on {device}; the pictures are read from disk")
            return False
        self.tell.line(
            f"cache: {in_words(size)} copied to {'memory' if device.type == 'cpu' else device}"
        )
        return True


def path_of(table: LabelTable, row: int) -> str:
    """The absolute path of a row's file."""
    path = table.items[row] if table.root is None else table.root / table.items[row]
    return os.path.abspath(path)  # noqa: PTH100  # resolve() would follow links


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be had on a device, or None where that is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    free = next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None
    )
    group = Path("/sys/fs/cgroup")
    try:  # a container has its own limit, to which files that are kept only while there is room count too
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())[
            "inactive_file"
        ]
    except (OSError, ValueError, KeyError):
        return free
    room = limit - used + int(kept)
    return room if free is None else min(free, room)


def in_words(count: float) -> str:
    """Bytes as people write them: 602 kB, 6.9 GB."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
