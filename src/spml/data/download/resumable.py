"""Downloading a large file: gone on with after a break, tried again after a passing fault, checked at the end."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from spml.data.download.request import (
    CHUNK,
    Advance,
    BrokenError,
    RefusedError,
    Remote,
    size_of,
    transfer,
)
from spml.errors import DataError, UserError

LONGEST_WAIT = 60.0  # seconds between two tries


def silent(what: str, done: int, total: int) -> None:
    """Tell nobody how far it is."""


def download(
    remote: Remote, folder: Path, *, advance: Advance = silent, attempts: int = 6, wait: float = 1.0
) -> Path:
    """The path of the file in the folder, downloaded unless it is there, its content checked.

    What has arrived is kept in `NAME.part`, so that a later call goes on where this one broke off.

    Args:
        remote: the file.
        folder: where to put it.
        advance: told how far it is.
        attempts: tries in a row without a new byte before an address is given up.
        wait: seconds before the second try; doubled before each further one.
    """
    path = folder / remote.name
    if path.exists():
        if problem := _problem(path, remote, advance):
            raise DataError(f"{path}: {problem}; remove it and run again")
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{remote.name}.part")
    with _only_one(part) as file:
        _complete(remote, file, _tag(part), advance, attempts, wait)
    problem = _problem(part, remote, advance)
    _tag(part).unlink(missing_ok=True)
    if problem:
        part.unlink()
        raise DataError(
            f"{remote.name}: {problem}; the download was deleted: run again, or get the file elsewhere"
        )
    part.replace(path)
    return path


def left(remote: Remote, folder: Path) -> int:
    """Bytes of a file that are not on the disk yet."""
    for name in (remote.name, f"{remote.name}.part"):
        if (folder / name).exists():
            return max(0, remote.size - (folder / name).stat().st_size)
    return remote.size


def require_space(folder: Path, needed: int) -> None:
    """Raise UserError unless the disk of a folder, which need not exist yet, has that many bytes free."""
    there = next(
        place for place in (folder.absolute(), *folder.absolute().parents) if place.exists()
    )
    free = shutil.disk_usage(there).free
    if free < needed:
        text = f"{free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB needed for what is to be downloaded and unpacked"
        raise UserError(f"{folder}: {text}; free some or give a --root on another disk")


@contextmanager
def _only_one(part: Path) -> Iterator[BinaryIO]:
    """The open part file, refused while another process holds it."""
    with part.open("ab") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not on Windows
            pass
        except BlockingIOError:
            raise UserError(
                f"{part}: another process is downloading it; wait for that one"
            ) from None
        yield file


def _tag(part: Path) -> Path:
    """Where the server's mark of the version of a part is kept: a part of another version is of no use."""
    return part.with_name(f"{part.name}.etag")


def _complete(
    remote: Remote, file: BinaryIO, tag: Path, advance: Advance, attempts: int, wait: float
) -> None:
    """Fill the part file, or raise DataError with what each address said."""
    said: list[str] = []
    for address in remote.addresses:
        failures, most = 0, 0
        while failures < attempts:
            try:
                return transfer(address, remote, file, tag, advance)
            except RefusedError as error:
                said.append(f"{address}: {error}")
                break
            except BrokenError as error:
                have = size_of(file)
                failures, most = (1, have) if have > most else (failures + 1, most)
                if failures == attempts:
                    said.append(f"{address}: {error}")
                else:
                    time.sleep(min(wait * 2 ** (failures - 1), LONGEST_WAIT))
    kept = f"{size_of(file):,} of {remote.size:,} bytes are kept: " if size_of(file) else ""
    raise DataError(
        f"{remote.name} could not be downloaded ({'; '.join(said)}); {kept}run again to go on, "
        f"or put the file into {tag.parent} yourself"
    )


def _problem(path: Path, remote: Remote, advance: Advance) -> str:
    """What is wrong with a file's content; nothing where it is as it should be."""
    size = path.stat().st_size
    if size != remote.size:
        return f"{size:,} bytes, {remote.size:,} expected"
    algorithm, _, wanted = remote.digest.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            advance(f"checking {remote.name}", file.tell(), size)
    return (
        ""
        if digest.hexdigest() == wanted
        else f"{algorithm} {digest.hexdigest()}, {wanted} expected"
    )
