"""A cache of decoded pictures: each is decoded once, at the training size, for all tables and runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
import zlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from spml.data.cache_pictures import Mode, Pictures, Teller, in_words, path_of
from spml.data.cache_pool import Pool, Record, Stamp, explained
from spml.data.pictures import decode_bytes, read_file
from spml.data.table import LabelTable
from spml.errors import DataError, UserError

COMMIT_SECONDS = 1.0  # a killed build loses no more than this
PENDING = 4096  # pictures handed to the threads ahead
RECENT = 2 * 10**9  # ns: a file changed so shortly before it was read may change again within the clock's step

Places = dict[str, tuple[LabelTable, int]]


@dataclass(frozen=True)
class Cache:
    """The decoded pictures of some tables, ready for feeds.

    Attributes:
        pool: that holds them.
        mode: disk, memory or device.
        device: that trains.
        upright: whether they were turned as their EXIF orientation says.
        tell: of what is done.
    """

    pool: Pool
    mode: Mode
    device: torch.device
    upright: bool
    tell: Teller

    def pictures(self, table: LabelTable) -> Pictures:
        """Batches of a table that the cache was opened with."""
        return Pictures(self.pool, table, self.mode, self.device, upright=self.upright, tell=self.tell)


class Silent:
    """Tells nobody."""

    def line(self, text: str) -> None:
        """Nothing."""

    def begin(self, what: str, total: int) -> None:
        """Nothing."""

    def advance(self, count: int) -> None:
        """Nothing."""


def open_cache(
    tables: Sequence[LabelTable],
    size: int | None,
    mode: Mode | None = None,
    *,
    folder: Path | None = None,
    device: torch.device | str = "cpu",
    upright: bool = True,
    threads: int | None = None,
    tell: Teller | None = None,
) -> Cache | None:
    """A cache that holds every picture of the tables; those it lacks are decoded now.

    Args:
        tables: of picture files; for arrays there is nothing to cache.
        size: height and width of the pictures.
        mode: disk maps the file, memory copies it, device puts it where training runs; none gives None.
        folder: of the cache; $SPML_CACHE or ~/.cache/spml when None.
        device: that trains.
        upright: turn pictures as their EXIF orientation says.
        threads: that decode; as many as there are cores when None.
        tell: shows lines and progress.

    Raises:
        DataError: pictures cannot be decoded: the first is named, the others are counted.
    """
    places = {path_of(table, row): (table, row) for table in tables if table.x is None for row in range(len(table))}
    if mode == "none" or size is None or not places:
        return None
    tell = Silent() if tell is None else tell
    pool = Pool(folder or default_folder(), size, upright=upright)
    with explained(pool.folder):
        pool.load()
        total = f"{len(places):,} pictures x {in_words(pool.slot_bytes)} = {in_words(len(places) * pool.slot_bytes)}"
        missing = _missing(pool, places)
        to_do = f", {len(missing):,} to decode" if len(missing) < len(places) else ""
        tell.line(f"cache: {total} in {pool.folder}{to_do if missing else ''}")
        if missing:
            with pool.locked(lambda: tell.line("cache: waiting for another process that writes to it")):
                _build(pool, {path: places[path] for path in _missing(pool, places)}, upright, threads, tell)
                pool.load()
    return Cache(pool, mode or "disk", torch.device(device), upright, tell)


def default_folder() -> Path:
    """Where decoded pictures are kept: $SPML_CACHE, or ~/.cache/spml."""
    return Path(os.environ.get("SPML_CACHE") or "~/.cache/spml").expanduser()


def _missing(pool: Pool, paths: Places) -> list[str]:
    """Files that are not in the pool, or have changed since."""
    known = pool.files
    return [path for path in paths if path not in known or known[path].stamp != _stamp(path)]


def _stamp(path: str) -> Stamp | None:
    """The status of a file; None where it is not there."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns) if stat.S_ISREG(status.st_mode) else None


def _build(pool: Pool, places: Places, upright: bool, threads: int | None, tell: Teller) -> None:
    """Decode files into the pool; DataError at the end for those that cannot be."""
    need = sum(path not in pool.files for path in places) * pool.slot_bytes  # the others may only have been touched
    free = shutil.disk_usage(pool.folder).free
    if need > free:
        raise UserError(
            f"cache in {pool.folder}: {in_words(need)} are needed and {in_words(free)} are free; "
            "make room, give --cache-dir with another folder, or --cache none"
        )
    errors: dict[str, DataError] = {}
    records: list[Record] = []
    pending: deque[tuple[str, Future[Record]]] = deque()
    paths = iter(places)
    tell.begin("decoding pictures", len(places))
    committed = time.monotonic()
    with ThreadPoolExecutor(threads or os.cpu_count()) as executor:
        try:
            for _ in places:
                while len(pending) < PENDING and (path := next(paths, None)) is not None:
                    pending.append((path, executor.submit(_add, pool, path, upright)))
                path, record = pending.popleft()
                try:
                    records.append(record.result())
                except DataError as error:
                    errors[path] = error
                tell.advance(1)
                if time.monotonic() - committed > COMMIT_SECONDS:
                    pool.commit(records)
                    records, committed = [], time.monotonic()
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
            pool.commit(records)
    if errors:
        raise _unreadable(errors, places)


def _add(pool: Pool, path: str, upright: bool) -> Record:
    """Put a file's pixels in the pool, unless those of a file with the same bytes are there."""
    stamp = _stamp(path) or Stamp(0, 0, 0)
    recent = time.time_ns() - max(stamp.modified, stamp.changed) < RECENT
    data = read_file(Path(path))
    content = hashlib.sha256(data).hexdigest()
    same = pool.contents.get(content)
    if same is not None:
        slot, checksum = same.slot, same.checksum
    else:
        pixels = decode_bytes(data, Path(path), pool.shape[1], upright=upright).contiguous().numpy()
        slot, checksum = pool.put(content, pixels), zlib.crc32(pixels.data)
    return Record(path, Stamp(stamp.length, 0, 0) if recent else stamp, content, slot, checksum)


def _unreadable(errors: dict[str, DataError], places: Places) -> DataError:
    """One line for all pictures that cannot be read: the first with the place where its row stands."""
    path, error = next(iter(errors.items()))
    table, row = places[path]
    more = f"; and {len(errors) - 1:,} more; `spml check` lists them all" if len(errors) > 1 else ""
    return DataError(f"{table.where(row)}{error}{more}")
