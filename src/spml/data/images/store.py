"""Decoded pictures on disk: slots of equal length in one file, and an index that says whose they are."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spml.errors import UserError

ASK_SECONDS = 0.05  # between two tries to get the right to write
FORMAT = 2  # of the files below, and of what `decode` and `resize` give
Pixels = npt.NDArray[np.uint8]


class Stamp(NamedTuple):
    """What a file's status says; equal stamps mean equal bytes. Times are in nanoseconds, 0 where not to be trusted."""

    length: int
    modified: int
    changed: int


class Record(NamedTuple):
    """A picture file and its pixels.

    Attributes:
        path: absolute.
        stamp: of the file when it was read.
        content: sha256 of its bytes.
        slot: number of the slot that holds the pixels.
        checksum: crc32 of the pixels.
    """

    path: str
    stamp: Stamp
    content: str
    slot: int
    checksum: int


class Pool:
    """The decoded pictures of one size, shared by all tables and runs.

    `pixels` holds them; `index` has a line for each file, with a checksum, written once the pixels are. What no
    line speaks of does not count, so a process may be killed at any moment. One process writes at a time, under `lock`.

    Args:
        folder: of all pools.
        size: height and width of the pictures.
        upright: whether they were turned as their EXIF orientation says.
    """

    def __init__(self, folder: Path, size: int, *, upright: bool) -> None:
        libraries = [
            version(name) for name in ("torch", "torchvision", "pillow")
        ]  # the pixels may change with them
        settings = [FORMAT, size, upright, *libraries, platform.machine()]
        key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
        self.folder = folder / f"{size}px-{key[:16]}"
        self.shape, self.slot_bytes = (size, size, 3), 3 * size * size
        self.files: dict[str, Record] = {}
        self.contents: dict[str, Record] = {}
        self._seen = (0, 0)
        self._claimed: dict[str, int] = {}
        self._next = 0
        self._mutex = threading.Lock()

    def load(self) -> None:
        """Read the index, if it changed; what is torn, damaged or past the end of `pixels` is left out."""
        with suppress(FileNotFoundError):
            lines = (self.folder / "index").read_bytes()
            length = (self.folder / "pixels").stat().st_size
            if (len(lines), length) == self._seen:
                return
            self._seen = (len(lines), length)
            records = [
                record for line in lines.split(b"\n") if (record := _parse(line)) is not None
            ]
            owner = {
                record.slot: record.content for record in records
            }  # a slot may have been given anew
            slots = length // self.slot_bytes
            kept = [r for r in records if r.slot < slots and owner[r.slot] == r.content]
            self.files = {record.path: record for record in kept}
            self.contents = {record.content: record for record in kept}
            self._next = 1 + max((record.slot for record in kept), default=-1)
            self._claimed = {}

    @contextmanager
    def locked(self, waiting: Callable[[], bool] | None = None) -> Iterator[bool]:
        """The right to write, with the index as it is now; False where it was not to be had.

        Args:
            waiting: called again and again while another process has the right, says whether to go on waiting; without
                it there is no waiting.
        """
        import fcntl

        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open(
            "ab"
        ) as file:  # closing it, or the end of the process, gives the right back
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if waiting is None or not waiting():
                        yield False
                        return
                    time.sleep(ASK_SECONDS)
            self.load()
            yield True

    def put(self, content: str, pixels: Pixels) -> int:
        """Write pixels to the slot of a content, and give its number; any thread of the writing process may."""
        with self._mutex:
            slot = self._claimed.setdefault(content, self._next)
            self._next = max(self._next, slot + 1)
        self._write(slot, pixels)
        return slot

    def commit(self, records: Iterable[Record]) -> None:
        """Make records count, whose pixels are written.

        Nothing is forced to the disk, which would hold up all who write meanwhile. After a loss of power lines may
        speak of pixels that were lost; a picture's checksum, which is looked at before it is first used, tells.
        """
        lines = b"".join(_line(record) for record in records)
        if not lines:
            return
        with (self.folder / "index").open("ab+") as file:
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                lines = b"\n" + lines  # ends the line that a killed process left unfinished
            file.write(lines)

    def mend(self, record: Record, pixels: Pixels) -> None:
        """Write a damaged slot again, if its owner and pixels are still those of the record and nobody else writes."""
        if zlib.crc32(pixels.data) == record.checksum:
            with self.locked() as mine:
                now = self.contents.get(record.content)
                if mine and now is not None and now.slot == record.slot:
                    self._write(record.slot, pixels)

    def view(self) -> Pixels:
        """All slots as uint8 (slots, size, size, 3), mapped from the file."""
        slots = (self.folder / "pixels").stat().st_size // self.slot_bytes
        return np.memmap(self.folder / "pixels", np.uint8, "r", shape=(slots, *self.shape))

    def _write(self, slot: int, pixels: Pixels) -> None:
        descriptor = os.open(self.folder / "pixels", os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            rest, place = pixels.data.cast("B"), slot * self.slot_bytes
            while rest:
                written = os.pwrite(descriptor, rest, place)
                rest, place = rest[written:], place + written
        finally:
            os.close(descriptor)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Errors of the system while a cache is written, as a line that says what to do."""
    try:
        yield
    except (OSError, ImportError) as error:
        if isinstance(error, ImportError):
            reason = "this system cannot lock files"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "the disk is full"
        else:
            reason = error.strerror or str(error)
        raise UserError(
            f"cache in {folder}: {reason}; give --cache-dir with another folder, or --cache none"
        ) from error


def _line(record: Record) -> bytes:
    text = json.dumps(record).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _parse(line: bytes) -> Record | None:
    """The record of a line; None where it is not what was written."""
    if len(line) < 10 or line[:9] != b"%08x " % zlib.crc32(line[9:]):
        return None
    path, stamp, content, slot, checksum = json.loads(line[9:])
    return Record(path, Stamp(*stamp), content, slot, checksum)
