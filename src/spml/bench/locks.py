"""Lock files in a folder that processes or machines share: one owner for each run."""

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

BEAT = 10.0  # seconds between two heartbeats
STALE = 90.0  # seconds without a heartbeat after which a lock expires


@dataclass
class Lock:
    """A lock file that one process owns.

    The owner updates the file's modification time every few seconds. Another process may take over
    a lock without a recent heartbeat, or one whose owner ran on this machine and has ended.

    `attempt` counts the processes that have acquired the lock for this run, including this one.
    """

    path: Path
    attempt: int = 1
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def take(self) -> bool:
        """Acquire the lock; return False if another process holds it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._create(self.path):
            return True
        if not stale(self.path):
            return False
        # Several processes may see the expired lock: one at a time checks it and takes it over
        turn = self.path.with_suffix(".turn")
        if not self._create(turn):
            if stale(turn):
                turn.unlink(missing_ok=True)
            return False
        try:
            if not stale(self.path):
                return False
            self.attempt = _read(self.path).get("attempt", 0) + 1
            temporary = self.path.with_suffix(f".{self.token}")
            temporary.write_text(self._text())
            temporary.replace(self.path)
            return True
        finally:
            turn.unlink(missing_ok=True)

    def release(self) -> None:
        """Delete the lock file if this lock still owns it."""
        if _read(self.path).get("token") == self.token:
            self.path.unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Send heartbeats until the block ends, then release the lock."""
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
        owner = {"host": host(), "pid": os.getpid(), "token": self.token, "attempt": self.attempt}
        return json.dumps(owner)

    def _create(self, path: Path) -> bool:
        try:
            with path.open("x") as file:
                file.write(self._text())
        except FileExistsError:
            return False
        return True


def stale(path: Path) -> bool:
    """Return whether a lock has expired: its owner has ended or sends no heartbeat."""
    try:
        touched = path.stat().st_mtime
    except FileNotFoundError:
        return False  # just released: the next attempt can acquire it
    owner = _read(path)
    if owner.get("host") == host() and not _alive(owner["pid"]):
        return True
    if abs(time.time() - touched) < STALE / 2:
        return False
    return _clock(path.parent) - touched > STALE


def host() -> str:
    """Return the name of this machine or container: the scope of its process ids."""
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
    """Return the time of the clock that stamps files in the folder; it may be a file server's."""
    probe = folder / f".clock-{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """Return the owner that a lock file names; empty while the file is incomplete or missing."""
    try:
        owner = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) and isinstance(owner.get("pid"), int) else {}
