"""Who works on what: lock files in a folder that processes, or machines, share."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEAT = 10.0  # seconds between two signs of life
STALE = 90.0  # seconds without one after which a lock may be taken over


@dataclass
class Lock:
    """A file that one process holds.

    Its holder touches it every few seconds. It may be taken over when it has not been touched for long, or when its
    holder is a process of this machine that is no more.

    Attributes:
        path: of the file.
        attempt: how many processes have begun what the lock is for, this one included.
    """

    path: Path
    attempt: int = 1
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def take(self) -> bool:
        """Whether the lock is now this one's."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._create(self.path):
            return True
        if not stale(self.path):
            return False
        turn = self.path.with_suffix(
            ".turn"
        )  # of those who saw it stale, one at a time looks again
        if not self._create(turn):
            if stale(turn):
                turn.unlink(missing_ok=True)
            return False
        try:
            if not stale(self.path):
                return False
            self.attempt = int(_read(self.path).get("attempt", 0)) + 1
            beside = self.path.with_suffix(f".{self.token}")
            beside.write_text(self._text())
            beside.replace(self.path)
            return True
        finally:
            turn.unlink(missing_ok=True)

    def release(self) -> None:
        """Give it up, if it is still this one's."""
        if _read(self.path).get("token") == self.token:
            self.path.unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep touching the file until the block ends, then give the lock up."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(BEAT):
                with suppress(OSError):
                    os.utime(self.path)

        thread = threading.Thread(target=beat, daemon=True, name="lock")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.release()

    def _text(self) -> str:
        return json.dumps(
            {"host": host(), "pid": os.getpid(), "token": self.token, "attempt": self.attempt}
        )

    def _create(self, path: Path) -> bool:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as file:
            file.write(self._text())
        return True


def stale(path: Path) -> bool:
    """Whether a lock's holder is gone: not there any more, or silent for long by the folder's own clock."""
    try:
        touched = path.stat().st_mtime
    except FileNotFoundError:
        return False  # just given up: it can be had at the next look
    holder = _read(path)
    if holder.get("host") == host() and not _alive(int(holder.get("pid", 0))):
        return True
    if abs(time.time() - touched) < STALE / 2:
        return False
    return _clock(path.parent) - touched > STALE


def host() -> str:
    """This machine, or container of it, within which process ids mean something."""
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = 0
    return f"{socket.gethostname()}/{space}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _clock(folder: Path) -> float:
    """The time by the clock that stamps the folder's files, which may be another machine's."""
    probe = folder / f".clock-{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """What the lock says; nothing while it is being written, or gone."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
