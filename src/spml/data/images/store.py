"""Decoded pictures on disk: equally long slots in one file, and an index of the picture files."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock, Timeout

from spml.data.table import LabelTable
from spml.errors import UserError

POLL_SECONDS = 0.05  # between two attempts to acquire the lock
FORMAT = 2  # of the files below, and of the pixels that `decode` and `resize` return
Pixels = npt.NDArray[np.uint8]


class Stamp(NamedTuple):
    """Status of a file; equal stamps mean equal bytes. Times in nanoseconds, 0 if unreliable."""

    length: int
    modified: int
    changed: int


class Record(NamedTuple):
    """A picture file and the slot of its pixels."""

    path: str  # absolute
    stamp: Stamp  # of the file when it was read
    content: str  # sha256 of its bytes
    slot: int
    checksum: int  # crc32 of the pixels


class Pool:
    """The decoded pictures of one size, shared by all tables and runs.

    The file `pixels` holds the slots. The file `index` has a line with a checksum for each picture
    file, written after its pixels; slots without a line are free. A process can therefore be killed
    at any moment. One process at a time writes, while it holds `lock`. `folder` is the parent of
    all pools.
    """

    def __init__(self, folder: Path, size: int) -> None:
        libraries = [version(name) for name in ("torch", "torchvision", "pillow")]
        # Pixels may change with a library's version, so it is part of the folder's name.
        # True: the pictures are rotated by their EXIF orientation.
        settings = [FORMAT, size, True, *libraries, platform.machine()]
        key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
        self.folder = folder / f"{size}px-{key[:16]}"
        self.shape = (size, size, 3)
        self.slot_bytes = 3 * size * size
        self.files: dict[str, Record] = {}
        self.contents: dict[str, Record] = {}
        self._lengths = (0, 0)  # of index and pixels when the index was last read
        self._claimed: dict[str, int] = {}
        self._next = 0
        self._file: FileIO | None = None  # stays readable if the file is deleted
        self._mutex = threading.Lock()

    def load(self) -> None:
        """Read the index if it changed; skip lines that are torn, damaged or point past the end."""
        with suppress(FileNotFoundError):
            lines = (self.folder / "index").read_bytes()
            length = (self.folder / "pixels").stat().st_size
            if (len(lines), length) == self._lengths:
                return
            self._lengths = (len(lines), length)
            parsed = (_parse(line) for line in lines.split(b"\n"))
            records = [record for record in parsed if record is not None]
            owner = {record.slot: record.content for record in records}  # slots can be reused
            slots = length // self.slot_bytes
            valid = [r for r in records if r.slot < slots and owner[r.slot] == r.content]
            self.files = {record.path: record for record in valid}
            self.contents = {record.content: record for record in valid}
            self._next = 1 + max((record.slot for record in valid), default=-1)
            self._claimed = {}

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Return the files that the pool lacks, or that changed since they were decoded."""
        files = self.files
        return [path for path in paths if path not in files or files[path].stamp != stamp_of(path)]

    @contextmanager
    def locked(self, waiting: Callable[[], bool] | None = None) -> Iterator[bool]:
        """Acquire the write lock and reload the index; yield False if another process holds it.

        The lock is tried again as long as `waiting` returns true; without it, once.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / "lock", blocking=False)  # released when the process ends
        while True:
            try:
                lock.acquire()
                break
            except Timeout:
                if waiting is None or not waiting():
                    yield False
                    return
                time.sleep(POLL_SECONDS)
        try:
            self.load()
            yield True
        finally:
            lock.release()

    def put(self, content: str, pixels: Pixels) -> int:
        """Write pixels to the slot of a content and return its number; safe in any thread."""
        with self._mutex:
            slot = self._claimed.setdefault(content, self._next)
            self._next = max(self._next, slot + 1)
        self._write(slot, pixels)
        return slot

    def commit(self, records: Iterable[Record]) -> None:
        """Add records to the index, after their pixels were written.

        Nothing is flushed to the disk, which would block every other writer. After a power loss the
        index may list pixels that were lost; the checksum, verified before a picture's first use,
        detects them.
        """
        lines = b"".join(_line(record) for record in records)
        if not lines:
            return
        with (self.folder / "index").open("ab+") as file:
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                lines = b"\n" + lines  # ends the partial line of a killed process
            file.write(lines)

    def mend(self, record: Record, pixels: Pixels) -> None:
        """Rewrite a damaged slot if it still belongs to the record and no other process writes."""
        if zlib.crc32(pixels.data) == record.checksum:
            with self.locked() as acquired:
                current = self.contents.get(record.content)
                if acquired and current is not None and current.slot == record.slot:
                    self._write(record.slot, pixels)

    def read_slot(self, number: int, out: Pixels) -> bool:
        """Copy a slot to `out`; False if the file lacks it.

        It is read, not mapped: a mapped file that another program shortens ends the process.
        """
        for attempt in range(2):
            if (file := self._opened(again=attempt > 0)) is None:
                return False
            rest, offset = out.data.cast("B"), number * self.slot_bytes
            while rest and (count := os.preadv(file.fileno(), [rest], offset)):
                rest, offset = rest[count:], offset + count
            if not rest:
                return True
        return False

    def state(self) -> tuple[int, int] | None:
        """Return length and time of modification of the slots' file, which writing changes."""
        if (file := self._opened()) is None:
            return None
        status = os.fstat(file.fileno())
        return status.st_size, status.st_mtime_ns

    def _opened(self, again: bool = False) -> FileIO | None:
        """Return the file of the slots; open it again if another has taken its place."""
        path = self.folder / "pixels"
        with self._mutex, suppress(FileNotFoundError):
            if self._file is not None and again:
                now, then = path.stat(), os.fstat(self._file.fileno())
                if not os.path.samestat(now, then):
                    self._file = None
            if self._file is None:
                self._file = FileIO(path)
        return self._file

    def summary(self, count: int, lacking: int, *, background: bool) -> str:
        """Describe a use of the pool in a line: pictures, size, folder, pictures to decode."""
        each, total = format_bytes(self.slot_bytes), format_bytes(count * self.slot_bytes)
        text = f"cache: {count:,} pictures x {each} = {total} in {self.folder}"
        if lacking and (background or lacking < count):
            text += f", {lacking:,} to decode{' meanwhile' if background else ''}"
        return text

    def _write(self, slot: int, pixels: Pixels) -> None:
        descriptor = os.open(self.folder / "pixels", os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            rest = pixels.data.cast("B")
            offset = slot * self.slot_bytes
            while rest:
                written = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[written:], offset + written
        finally:
            os.close(descriptor)


def stamp_of(path: str) -> Stamp | None:
    """Return the status of a file; None if it is missing or not an ordinary file."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def path_of(table: LabelTable, row: int) -> str:
    """Return the absolute path of a row's file."""
    path = table.items[row] if table.root is None else table.root / table.items[row]
    return os.path.abspath(path)  # noqa: PTH100  # resolve() would follow links


def default_folder() -> Path:
    """Return the folder of decoded pictures: $SPML_CACHE, or ~/.cache/spml."""
    return Path(os.environ.get("SPML_CACHE") or "~/.cache/spml").expanduser()


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn system errors of a cache into a UserError that names the remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or error
        remedy = "give --cache-dir with another folder, or --cache none"
        raise UserError(f"cache in {folder}: {reason}; {remedy}") from error


def free_memory(device: torch.device) -> int | None:
    """Return the bytes available on a device, or None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    available = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    free = available[0] * 1024 if available else None

    # A container has its own limit. Its usage includes file pages that the kernel can drop.
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        details = (group / "memory.stat").read_text().splitlines()
        droppable = int(dict(line.split() for line in details)["inactive_file"])
    except (OSError, ValueError, KeyError):
        return free
    within = limit - used + droppable
    return within if free is None else min(free, within)


def format_bytes(count: float) -> str:
    """Format a number of bytes: 602 kB, 6.9 GB."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _line(record: Record) -> bytes:
    text = json.dumps(record).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _parse(line: bytes) -> Record | None:
    """Parse a line of the index; None if it was damaged."""
    if len(line) < 10 or line[:9] != b"%08x " % zlib.crc32(line[9:]):
        return None
    path, stamp, content, slot, checksum = json.loads(line[9:])
    return Record(path, Stamp(*stamp), content, slot, checksum)
