"""Decoding the pictures that a cache lacks, by threads: before anything else, or while the caller trains."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path

import numpy as np

from spml.data.images.cached import Teller, in_words
from spml.data.images.decode import channels_last, decode_bytes, read_file
from spml.data.images.store import Pool, Record, Stamp, explained
from spml.data.table import LabelTable
from spml.errors import DataError, UserError

COMMIT_SECONDS = 1.0  # a killed build loses no more than this
RESTLESS = 4  # threads that decode what is not needed soon
TICK = 0.1  # seconds after which what waits looks whether it should leave
RECENT = (
    2 * 10**9
)  # ns: a file changed so shortly before it was read may change again within the clock's step

Places = dict[str, tuple[LabelTable, int]]


class Build:
    """Decodes files into a pool: in an order given, but what somebody waits for comes first.

    Args:
        pool: that lacks them.
        places: a row of each file, in the order in which errors are told.
        order: of decoding; the files of `places`.
        upright: turn pictures as their EXIF orientation says.
        threads: that decode.
        tell: shows lines and progress.
        soon: so many of the order are needed soon. Once they are begun, most threads rest until somebody waits.
    """

    def __init__(
        self,
        pool: Pool,
        places: Places,
        order: Iterable[str],
        *,
        upright: bool,
        threads: int,
        tell: Teller,
        soon: int | None = None,
    ) -> None:
        self.pool, self.places, self.upright, self.threads, self.tell = (
            pool,
            places,
            upright,
            threads,
            tell,
        )
        self.found: dict[str, Record] = {}
        self.errors: dict[str, DataError] = {}
        self._failure: BaseException | None = None  # that ended all of it
        self._broken: BaseException | None = None  # of a thread
        self._leaving = self._over = False
        self._left, self._order = set(places), iter(order)  # files that no thread has begun
        self._soon = len(places) if soon is None else soon
        self._urgent: deque[str] = deque()
        self._waiters: dict[str, list[_Waiter]] = {}
        self._done: list[Record] = []  # to be committed
        self._ended = 0
        self._mutex = threading.Lock()
        self._begun = False
        self._settled = threading.Event()  # it is known whether it could begin
        self._thread: threading.Thread | None = None
        self._asked = 0.0  # when the index was last looked at while another process writes

    def start(self) -> None:
        """Begin behind the caller; an error before the first picture, such as too small a disk, is raised here.

        A later one is raised where it matters, however soon it comes.
        """
        self._thread = threading.Thread(target=self._behind, name="cache")
        self._thread.start()
        self._settled.wait()
        if self._failure is not None and not self._begun:
            raise self._failure

    def run(self, *, progress: bool = True) -> None:
        """Decode what is left, until all is done or `close` is called; what is decoded counts, whatever happens."""
        try:
            with explained(self.pool.folder), self.pool.locked(self._wait_for_right) as mine:
                if mine:
                    self._take_known()
                    self._check_room()
                    self._begin()
                    self._decode(progress)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            with self._mutex:
                self._over = True
                waiters = [waiter for those in self._waiters.values() for waiter in those]
            for waiter in waiters:
                waiter.ready.set()

    def wait(self, paths: Sequence[str], gone: Callable[[], bool] | None = None) -> list[Record]:
        """The records of files, as soon as they are decoded.

        Args:
            paths: among those to decode.
            gone: whether nobody wants them any more, which ends the waiting with CancelledError.

        Raises:
            DataError: one of them cannot be decoded; raised when all decoding is over, of all such files together.
        """
        waiter = None
        with self._mutex:
            lacking = dict.fromkeys(path for path in paths if path not in self.found)
            if lacking and not self._over:
                waiter = _Waiter(len(lacking))
                self._urgent.extend(path for path in lacking if path in self._left)
                for path in lacking:
                    self._waiters.setdefault(path, []).append(waiter)
        while waiter is not None and not waiter.ready.wait(TICK):
            if gone is not None and gone():
                raise CancelledError
        if any(path not in self.found for path in lacking):
            self.check()
            raise RuntimeError("the cache was closed before these pictures were decoded")
        return [self.found[path] for path in paths]

    def finish(self) -> None:
        """Wait until all is decoded; raise what went wrong."""
        self._soon = len(self.places)
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(TICK)
        self.check()

    def check(self) -> None:
        """Raise what went wrong: files that cannot be decoded in one line, the first with its row's place."""
        if self._failure is not None:
            raise self._failure
        if self.errors:
            path = next(path for path in self.places if path in self.errors)
            table, row = self.places[path]
            more = (
                f"; and {len(self.errors) - 1:,} more; `spml check` lists them all"
                if len(self.errors) > 1
                else ""
            )
            raise DataError(f"{table.where(row)}{self.errors[path]}{more}")

    def close(self) -> None:
        """Leave what is not begun; what is decoded is committed."""
        self._leaving = True
        if self._thread is not None:
            self._thread.join()

    def _behind(self) -> None:
        with suppress(BaseException):  # kept for those who wait
            self.run(progress=False)
        self._settled.set()

    def _begin(self) -> None:
        self._begun = True
        self._settled.set()

    def _stopped(self) -> bool:
        """Whether to leave: told so, or the program ends, which waits for these threads."""
        return self._leaving or not threading.main_thread().is_alive()

    def _wait_for_right(self) -> bool:
        """Called while another process writes: what it commits can be used. Gives whether to go on waiting."""
        if not self._asked:
            self.tell.line("cache: waiting for another process that writes to it")
            self._begin()
        if time.monotonic() - self._asked > COMMIT_SECONDS:
            self.pool.load()
            self._take_known()
            self._asked = time.monotonic()
        return not self._stopped()

    def _take_known(self) -> None:
        """What the pool holds by now need not be decoded."""
        lacking = set(missing(self.pool, self._left))
        for path in self._left - lacking:
            self._keep(path, self.pool.files[path])
        with self._mutex:
            self._left &= lacking

    def _check_room(self) -> None:
        need = (
            sum(path not in self.pool.files for path in self._left) * self.pool.slot_bytes
        )  # others may be the same
        free = shutil.disk_usage(self.pool.folder).free
        if need > free:
            raise UserError(
                f"cache in {self.pool.folder}: {in_words(need)} are needed and {in_words(free)} are free; "
                "make room, give --cache-dir with another folder, or --cache none"
            )

    def _decode(self, progress: bool) -> None:
        """Let threads work, and commit what they did from time to time."""
        total, shown, committed = len(self._left), 0, time.monotonic()
        if progress:
            self.tell.begin("decoding pictures", total)
        numbers = range(min(self.threads, total))
        workers = [
            threading.Thread(target=self._work, args=(number,), name="decode") for number in numbers
        ]
        try:
            for worker in workers:
                worker.start()
            while alive := [worker for worker in workers if worker.is_alive()]:
                alive[0].join(min(TICK, COMMIT_SECONDS))
                if progress:
                    shown, before = self._ended, shown
                    self.tell.advance(shown - before)
                if time.monotonic() - committed > COMMIT_SECONDS:
                    self._commit()
                    committed = time.monotonic()
        finally:
            self._leaving = True
            for worker in workers:
                if worker.ident is not None:
                    worker.join()
            self._commit()
        if self._broken is not None:
            raise self._broken

    def _commit(self) -> None:
        with self._mutex:
            records, self._done = self._done, []
        self.pool.commit(records)

    def _work(self, number: int) -> None:
        """What each thread does: one file after the other."""
        try:
            while not self._stopped() and (path := self._next(number)) is not None:
                try:
                    record = _add(self.pool, path, self.upright)
                except DataError as error:
                    self.errors[path] = error
                else:
                    self._keep(path, record, new=True)
                with self._mutex:
                    self._ended += 1
        except BaseException as error:  # told by the thread that commits
            self._broken, self._leaving = error, True

    def _next(self, number: int) -> str | None:
        """A file for the thread of that number; None when all are begun, or all is over."""
        while not self._stopped():
            with self._mutex:
                if not self._left:
                    return None
                while self._urgent:
                    if (path := self._urgent.popleft()) in self._left:
                        self._left.remove(path)
                        return path
                while (self._soon > 0 or number < RESTLESS) and (
                    later := next(self._order, None)
                ) is not None:
                    self._soon -= 1
                    if later in self._left:
                        self._left.remove(later)
                        return later
            time.sleep(TICK)  # so that whoever trains meanwhile has the processor
        return None

    def _keep(self, path: str, record: Record, *, new: bool = False) -> None:
        with self._mutex:
            self.found[path] = record
            if new:
                self._done.append(record)
            for waiter in self._waiters.pop(path, ()):
                waiter.lacking -= 1
                if not waiter.lacking:
                    waiter.ready.set()


class _Waiter:
    """Somebody who waits for some files."""

    def __init__(self, lacking: int) -> None:
        self.lacking, self.ready = lacking, threading.Event()


def missing(pool: Pool, paths: Iterable[str]) -> list[str]:
    """Files that are not in the pool, or have changed since."""
    known = pool.files
    return [path for path in paths if path not in known or known[path].stamp != _stamp(path)]


def _stamp(path: str) -> Stamp | None:
    """The status of a file; None where it is not there."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return (
        Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if stat.S_ISREG(status.st_mode)
        else None
    )


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
        picture = decode_bytes(data, Path(path), pool.shape[0], upright=upright)
        pixels = np.ascontiguousarray(channels_last(picture).numpy())
        slot, checksum = pool.put(content, pixels), zlib.crc32(pixels.data)
    return Record(path, Stamp(stamp.length, 0, 0) if recent else stamp, content, slot, checksum)
