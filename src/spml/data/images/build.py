"""Decode the pictures that a cache lacks, by threads: before training, or in the background."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from pathlib import Path

import numpy as np

from spml.data.images.decode import channels_last, decode_bytes, read_file
from spml.data.images.store import Pool, Record, Stamp, explained, format_bytes, stamp_of
from spml.data.table import LabelTable
from spml.errors import DataError, UserError

COMMIT_SECONDS = 1.0  # a killed build loses at most this much work
TICK = 0.1  # seconds between checks whether a waiting reader should stop
# ns: a file that changed this shortly before it was read may change again without a new timestamp.
RECENT = 2 * 10**9

Places = dict[str, tuple[LabelTable, int]]


class Progress:
    """Receives lines and progress; this one prints nothing."""

    def line(self, text: str) -> None:
        """Print a line."""

    def begin(self, what: str, total: int) -> None:
        """Start a progress bar over `total` items."""

    def advance(self, count: int) -> None:
        """Advance the bar by `count` items."""


class Build:
    """Decodes the files that a pool lacks: in a fixed order, except that awaited files come first.

    `places` has a row of each file, in the order in which errors are reported.
    """

    def __init__(
        self, pool: Pool, places: Places, order: Iterable[str], *, threads: int, progress: Progress
    ) -> None:
        self.pool, self.places = pool, places
        self.threads, self.progress = threads, progress
        self.records: dict[str, Record] = {}
        self.errors: dict[str, DataError] = {}
        self._failure: BaseException | None = None  # ended the whole build
        self._leaving = self._over = False
        self._left = set(places)  # files that no thread has started
        self._order = iter(order)
        self._urgent: deque[str] = deque()
        self._waiters: dict[str, Future[None]] = {}  # of files that readers wait for
        self._uncommitted: list[Record] = []
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._polled = 0.0  # when the index was last read while another process writes

    def start(self) -> None:
        """Start in the background; an error is raised to readers and by `finish`."""

        def run() -> None:
            with suppress(BaseException):  # stored in _failure
                self.run(show_progress=False)

        self._thread = threading.Thread(target=run, name="cache")
        self._thread.start()

    def run(self, *, show_progress: bool = True) -> None:
        """Decode until all files are done or `close` is called; commit in any case."""
        try:
            with explained(self.pool.folder), self.pool.locked(self._wait_for_lock) as acquired:
                if acquired:
                    self._use_known()
                    self._check_disk_space()
                    self._decode(show_progress)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            with self._mutex:
                self._over = True
                for waiter in self._waiters.values():
                    waiter.set_result(None)

    def wait(
        self, paths: Sequence[str], cancelled: Callable[[], bool] | None = None
    ) -> list[Record]:
        """Return the records of files as soon as they are decoded.

        Files that cannot be decoded are one DataError after all decoding. CancelledError is raised
        once `cancelled` returns true.
        """
        waiters: list[Future[None]] = []
        with self._mutex:
            lacking = dict.fromkeys(path for path in paths if path not in self.records)
            if not self._over:
                self._urgent.extend(path for path in lacking if path in self._left)
                waiters = [self._waiters.setdefault(path, Future()) for path in lacking]
        while wait(waiters, TICK).not_done:
            if cancelled is not None and cancelled():
                raise CancelledError
        if any(path not in self.records for path in lacking):
            self.check()
            raise RuntimeError("the cache was closed before these pictures were decoded")
        return [self.records[path] for path in paths]

    def finish(self) -> None:
        """Wait until all files are decoded; raise the error of the build, if any."""
        if self._thread is not None:
            self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise the error of the build; undecodable files in one line, the first with its row."""
        if self._failure is not None:
            raise self._failure
        if self.errors:
            path = next(path for path in self.places if path in self.errors)
            table, row = self.places[path]
            others = len(self.errors) - 1
            more = f"; and {others:,} more; `spml check` lists them all" if others else ""
            raise DataError(f"{table.where(row)}{self.errors[path]}{more}")

    def close(self) -> None:
        """Stop after the files in progress, and commit them."""
        self._leaving = True
        if self._thread is not None:
            self._thread.join()

    def _stopped(self) -> bool:
        """Return whether to stop: `close` was called, or the main thread ended."""
        return self._leaving or not threading.main_thread().is_alive()

    def _wait_for_lock(self) -> bool:
        """Use the files that the writing process commits; return whether to keep waiting."""
        if not self._polled:
            self.progress.line("cache: waiting for another process that writes to it")
        if time.monotonic() - self._polled > COMMIT_SECONDS:
            self.pool.load()
            self._use_known()
            self._polled = time.monotonic()
        return not self._stopped()

    def _use_known(self) -> None:
        """Take the records that the pool has by now instead of decoding their files."""
        lacking = set(self.pool.missing(self._left))
        for path in self._left - lacking:
            self._add_record(path, self.pool.files[path])
        with self._mutex:
            self._left &= lacking

    def _check_disk_space(self) -> None:
        # Changed files may have equal contents, so only new paths are counted.
        count = sum(path not in self.pool.files for path in self._left)
        need = count * self.pool.slot_bytes
        free = shutil.disk_usage(self.pool.folder).free
        if need > free:
            raise UserError(
                f"cache in {self.pool.folder}: {format_bytes(need)} are needed and "
                f"{format_bytes(free)} are free; "
                "make room, give --cache-dir with another folder, or --cache none"
            )

    def _decode(self, show_progress: bool) -> None:
        """Run the threads and commit their records at intervals."""
        total, shown = len(self._left), 0
        if show_progress:
            self.progress.begin("decoding pictures", total)
        # An executor would keep the program until all files are decoded.
        workers = [
            threading.Thread(target=self._work, name="decode")
            for _ in range(min(self.threads, total))
        ]
        for worker in workers:
            worker.start()
        try:
            while alive := [worker for worker in workers if worker.is_alive()]:
                alive[0].join(COMMIT_SECONDS)
                self._commit()
                if show_progress:
                    shown, before = total - len(self._left), shown
                    self.progress.advance(shown - before)
        finally:
            self._leaving = True
            for worker in workers:
                worker.join()
            self._commit()
        if self._failure is not None:
            raise self._failure

    def _commit(self) -> None:
        with self._mutex:
            records, self._uncommitted = self._uncommitted, []
        self.pool.commit(records)

    def _work(self) -> None:
        """Decode one file after another, in a thread."""
        try:
            while not self._stopped() and (path := self._next()) is not None:
                try:
                    record = _add(self.pool, path)
                except DataError as error:
                    self.errors[path] = error
                else:
                    self._add_record(path, record, new=True)
        except BaseException as error:  # raised again by the thread that commits
            self._failure, self._leaving = error, True

    def _next(self) -> str | None:
        """Return a file that no thread has started, awaited ones first; None without any."""
        with self._mutex:
            while self._left:
                path = self._urgent.popleft() if self._urgent else next(self._order)
                if path in self._left:
                    self._left.remove(path)
                    return path
        return None

    def _add_record(self, path: str, record: Record, *, new: bool = False) -> None:
        with self._mutex:
            self.records[path] = record
            if new:
                self._uncommitted.append(record)
            if waiter := self._waiters.pop(path, None):
                waiter.set_result(None)


def _add(pool: Pool, path: str) -> Record:
    """Store a file's pixels in the pool, unless a file with the same bytes is there."""
    stamp = stamp_of(path) or Stamp(0, 0, 0)
    recent = time.time_ns() - max(stamp.modified, stamp.changed) < RECENT
    data = read_file(Path(path))
    content = hashlib.sha256(data).hexdigest()
    same = pool.contents.get(content)
    if same is not None:
        slot, checksum = same.slot, same.checksum
    else:
        picture = decode_bytes(data, Path(path), pool.shape[0])
        pixels = np.ascontiguousarray(channels_last(picture).numpy())
        slot, checksum = pool.put(content, pixels), zlib.crc32(pixels.data)
    if recent:
        stamp = Stamp(stamp.length, 0, 0)  # forces a comparison of contents next time
    return Record(path, stamp, content, slot, checksum)
