"""The cached pictures of a table: from the mapped file, a copy in memory, or a copy on the device."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spml.data.cache_pool import Pool
from spml.data.pictures import decode
from spml.data.table import LabelTable
from spml.errors import DataError, UserError

Mode = Literal["none", "disk", "memory", "device"]
Rows = npt.NDArray[np.int64]
CHUNK = 256  # pictures copied at a time
DEVICE_SHARE, MEMORY_SHARE = 0.6, 0.8  # of what is free: training needs the rest


class Teller(Protocol):
    """Where lines and progress go."""

    def line(self, text: str) -> None:
        """A line that stays."""

    def begin(self, what: str, total: int) -> None:
        """Start a bar over `total` items."""

    def advance(self, count: int) -> None:
        """So many more are done."""


class Pictures:
    """Batches of a table's pictures from a pool that holds them all.

    Args:
        pool: with its index read.
        table: of picture files.
        mode: disk, memory or device.
        device: that trains.
        upright: as the pool's pictures are.
        tell: of what is copied and what was damaged.
    """

    def __init__(
        self, pool: Pool, table: LabelTable, mode: Mode, device: torch.device, *, upright: bool, tell: Teller
    ) -> None:
        self.pool, self.table, self.device, self.upright, self.tell = pool, table, device, upright, tell
        self.records = [pool.files[path_of(table, row)] for row in range(len(table))]
        self.slots = np.array([record.slot for record in self.records], np.int64)
        self.checked = np.zeros(len(table), bool)
        self.pixels = pool.view()
        self.resident: Tensor | None = None
        if mode == "device" and device.type != "cpu":
            self._copy_to(device)
        elif mode in ("memory", "device"):
            self._copy_to(torch.device("cpu"))

    def batch(self, rows: Rows) -> tuple[Tensor, dict[int, DataError]]:
        """The pictures of the rows, without those that were damaged in the cache and now cannot be decoded; and why."""
        if self.resident is not None:
            return self.resident.index_select(0, torch.from_numpy(rows).to(self.device, non_blocking=True)), {}
        pinned = self.device.type == "cuda"
        out = torch.empty((len(rows), *self.pool.shape), dtype=torch.uint8, pin_memory=pinned)
        copies = out.numpy()
        for copied, slot in zip(copies, self.slots[rows], strict=True):
            copied[...] = self.pixels[slot]  # by numpy, which uses this thread alone
        errors: dict[int, DataError] = {}
        for place in np.flatnonzero(~self.checked[rows]):
            row = int(rows[place])
            try:
                if zlib.crc32(copies[place].data) != self.records[row].checksum:
                    out[place] = self._again(row)
                else:
                    self.checked[row] = True
            except DataError as error:
                errors[row] = error
        return (out[[int(row) not in errors for row in rows]] if errors else out), errors

    def _again(self, row: int) -> Tensor:
        """The pixels of a picture whose slot is damaged, which is mended if that can be done."""
        path = path_of(self.table, row)
        self.tell.line(f"cache: {path} is damaged in the cache and is decoded again")
        try:
            picture = decode(Path(path), self.pool.shape[1], upright=self.upright).contiguous()
        except DataError as error:
            raise DataError(f"{self.table.where(row)}{error}") from error
        with suppress(OSError):  # the cache may be another's, to read only
            self.pool.mend(self.records[row], picture.numpy())
        return picture

    def _copy_to(self, device: torch.device) -> None:
        """Put a copy of the table's pictures where they are used, if there is room."""
        size, free = len(self.table) * self.pool.slot_bytes, free_memory(device)
        share = DEVICE_SHARE if device.type == "cuda" else MEMORY_SHARE
        if free is not None and size > share * free:
            room = f"{in_words(size)} do not fit well in the {in_words(free)} that are free"
            if device.type == "cpu":
                raise UserError(f"cache in memory: {room}; give --cache disk")
            self.tell.line(f"cache: {room} on {device}; the pictures are read from disk")
            return
        self.tell.line(f"cache: {in_words(size)} copied to {'memory' if device.type == 'cpu' else device}")
        copy = torch.empty((len(self.table), *self.pool.shape), dtype=torch.uint8, device=device)
        for start in range(0, len(self.table), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(self.table)))
            pictures, errors = self.batch(rows)
            for error in errors.values():
                raise error
            copy[start : start + len(rows)] = pictures.to(device, non_blocking=True)
        if device.type == "cpu":
            self.pixels, self.slots, self.checked[:] = copy.numpy(), np.arange(len(self.table)), True
        else:
            self.resident = copy


def path_of(table: LabelTable, row: int) -> str:
    """The absolute path of a row's file."""
    return os.path.abspath(table.items[row] if table.root is None else table.root / table.items[row])  # noqa: PTH100


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be had on a device, or None where that is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    group = Path("/sys/fs/cgroup")
    try:  # a container has its own limit, to which files that are kept only while there is room count too
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
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
