"""Download a large file: resume after a break, retry after a transient fault, check at the end."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from spml.data.download.remote import Remote
from spml.data.download.request import (
    CHUNK,
    Advance,
    BrokenError,
    RefusedError,
    size_of,
    transfer,
)
from spml.errors import DataError, UserError

LONGEST_WAIT = 60.0  # seconds between two tries


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


def download(
    remote: Remote, folder: Path, *, advance: Advance = silent, attempts: int = 6, wait: float = 1.0
) -> Path:
    """Download a file unless it exists, check its content, and return its path.

    Received bytes are kept in `NAME.part`, from which a later call resumes.

    Args:
        remote: the file.
        folder: where to put it.
        advance: called with the progress.
        attempts: tries in a row without a new byte before an address is abandoned.
        wait: seconds before the second try; doubled before each further one.
    """
    path = folder / remote.name
    if path.exists():
        if problem := _problem(path, remote, advance):
            raise DataError(f"{path}: {problem}; remove it and run again")
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{remote.name}.part")
    with _locked(part) as file:
        _complete(remote, file, _tag(part), advance, attempts, wait)
    problem = _problem(part, remote, advance)
    _tag(part).unlink(missing_ok=True)
    if problem:
        part.unlink()
        raise DataError(
            f"{remote.name}: {problem}; "
            "the download was deleted: run again, or get the file elsewhere"
        )
    part.replace(path)
    return path


def left(remote: Remote, folder: Path) -> int:
    """Return the number of bytes that are still to be downloaded."""
    for name in (remote.name, f"{remote.name}.part"):
        if (folder / name).exists():
            return max(0, remote.size - (folder / name).stat().st_size)
    return remote.size


def require_space(folder: Path, needed: int) -> None:
    """Raise UserError unless the disk of a folder has enough free bytes; it need not exist yet."""
    places = (folder.absolute(), *folder.absolute().parents)
    free = shutil.disk_usage(next(place for place in places if place.exists())).free
    if free < needed:
        space = f"{free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB needed to download and unpack"
        raise UserError(f"{folder}: {space}; free some or give a --root on another disk")


@contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
    """Open the part file; refuse if another process has locked it."""
    lock = FileLock(part.with_name(f"{part.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(f"{part}: another process is downloading it; wait for that one") from None
    try:
        with part.open("ab") as file:
            yield file
    finally:
        with suppress(OSError):  # Windows refuses to remove an open file
            Path(lock.lock_file).unlink()
        lock.release()


def _tag(part: Path) -> Path:
    """Return the file of the server's version tag; a part of another version cannot be resumed."""
    return part.with_name(f"{part.name}.etag")


def _complete(
    remote: Remote, file: BinaryIO, tag: Path, advance: Advance, attempts: int, wait: float
) -> None:
    """Fill the part file, or raise DataError with the error of each address."""
    errors: list[str] = []
    for address in remote.addresses:
        failures, most = 0, 0
        while failures < attempts:
            try:
                return transfer(address, remote, file, tag, advance)
            except RefusedError as error:
                errors.append(f"{address}: {error}")
                break
            except BrokenError as error:
                have = size_of(file)
                failures, most = (1, have) if have > most else (failures + 1, most)
                if failures == attempts:
                    errors.append(f"{address}: {error}")
                else:
                    time.sleep(min(wait * 2 ** (failures - 1), LONGEST_WAIT))
    part = f"{size_of(file):,} of {remote.size:,} bytes are kept: " if size_of(file) else ""
    raise DataError(
        f"{remote.name} could not be downloaded ({'; '.join(errors)}); {part}run again to resume, "
        f"or put the file into {tag.parent} yourself"
    )


def _problem(path: Path, remote: Remote, advance: Advance) -> str:
    """Describe what is wrong with a file's content; empty if it is correct."""
    size = path.stat().st_size
    if size != remote.size:
        return f"{size:,} bytes, {remote.size:,} expected"
    algorithm, _, wanted = remote.digest.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            advance(f"checking {remote.name}", file.tell(), size)
    if digest.hexdigest() == wanted:
        return ""
    return f"{algorithm} {digest.hexdigest()}, {wanted} expected"
