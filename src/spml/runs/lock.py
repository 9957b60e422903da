"""One process at a time trains into a run folder."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from spml.errors import UserError


class TakenError(UserError):
    """Another process trains into the folder."""


class Claim:
    """Locks on files, until the block ends, or the process in whatever way. Who only reads them does not notice."""

    def __init__(self) -> None:
        self._held: list[BinaryIO] = []

    def take(self, path: Path) -> None:
        """Lock a file, where there is one; TakenError where another process has.

        What cannot be opened or locked is let be: a file system may know no locks, and nothing can be trained into a
        folder that cannot be written to.
        """
        try:
            import fcntl

            file = path.open("rb+")
        except (ImportError, OSError):  # on Windows; without a file
            return
        if any(
            os.path.samestat(os.fstat(file.fileno()), os.fstat(held.fileno()))
            for held in self._held
        ):
            file.close()
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise TakenError(
                f"another process trains into {path.parent}; wait for it, or give another --out"
            ) from None
        except OSError:
            pass
        self._held.append(file)

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._held:
            self._held.pop().close()
