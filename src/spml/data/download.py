"""Downloading a large file: gone on with after a break, tried again after a passing fault, checked at the end."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from spml.errors import DataError, UserError

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # answers that another try may change
CHUNK = 2**20
TIMEOUT = 60.0  # seconds without a byte
LONGEST_WAIT = 60.0  # seconds between two tries

Advance = Callable[[str, int, int], None]  # what is done, bytes done, bytes in all


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        name: its name on the disk.
        addresses: where it lies; each is tried in turn.
        size: in bytes.
        digest: "md5:..." or "sha256:..." of its content.
    """

    name: str
    addresses: tuple[str, ...]
    size: int
    digest: str


class _Broken(Exception):
    """A passing fault: try again."""


class _Refused(Exception):
    """An answer that will not change: try another address."""


def _silent(what: str, done: int, total: int) -> None:
    pass


def download(
    remote: Remote, folder: Path, *, advance: Advance = _silent, attempts: int = 6, wait: float = 1.0
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
        raise DataError(f"{remote.name}: {problem}; the download was deleted: run again, or get the file elsewhere")
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
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
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
            raise UserError(f"{part}: another process is downloading it; wait for that one") from None
        yield file


def _tag(part: Path) -> Path:
    """Where the server's mark of the version of a part is kept: a part of another version is of no use."""
    return part.with_name(f"{part.name}.etag")


def _complete(remote: Remote, file: BinaryIO, tag: Path, advance: Advance, attempts: int, wait: float) -> None:
    """Fill the part file, or raise DataError with what each address said."""
    said: list[str] = []
    for address in remote.addresses:
        failures, most = 0, 0
        while failures < attempts:
            try:
                return _transfer(address, remote, file, tag, advance)
            except _Refused as error:
                said.append(f"{address}: {error}")
                break
            except _Broken as error:
                have = _size(file)
                failures, most = (1, have) if have > most else (failures + 1, most)
                if failures == attempts:
                    said.append(f"{address}: {error}")
                else:
                    time.sleep(min(wait * 2 ** (failures - 1), LONGEST_WAIT))
    kept = f"{_size(file):,} of {remote.size:,} bytes are kept: " if _size(file) else ""
    raise DataError(
        f"{remote.name} could not be downloaded ({'; '.join(said)}); {kept}run again to go on, "
        f"or put the file into {tag.parent} yourself"
    )


def _size(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)


def _transfer(address: str, remote: Remote, file: BinaryIO, tag: Path, advance: Advance) -> None:
    """One request: append what is missing, or all of it where the server does not give parts."""
    have = _size(file)
    if have == remote.size:
        return
    headers = {"User-Agent": "spml", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if tag.exists():
            headers["If-Range"] = tag.read_text()
    with _answer(urllib.request.Request(address, headers=headers), file) as response:
        if _start(response, remote, have) == 0:
            file.truncate(0)
            _remember(response, tag)
        for chunk in _chunks(response):
            file.write(chunk)
            advance(remote.name, _size(file), remote.size)
            if _size(file) > remote.size:
                file.truncate(0)
                raise _Refused(f"sends more than the {remote.size:,} bytes expected")
    file.flush()
    if _size(file) < remote.size:
        raise _Broken(f"broke off after {_size(file):,} bytes")


@contextmanager
def _answer(request: urllib.request.Request, file: BinaryIO) -> Iterator[Any]:
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the part is longer than the file: it is of something else
            file.truncate(0)
        kind = _Broken if error.code in TRANSIENT or error.code == 416 else _Refused
        raise kind(f"HTTP {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        raise _Broken(str(getattr(error, "reason", error)) or type(error).__name__) from None
    with response:
        yield response


def _start(response: Any, remote: Remote, have: int) -> int:
    """Where in the file the body of an answer begins."""
    start, total = 0, response.headers.get("Content-Length")
    if response.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != have:
            raise _Refused("answers with another part than was asked for")
        start, total = have, found[2].strip("*")
    if total and int(total) != remote.size:
        raise _Refused(f"offers {int(total):,} bytes, {remote.size:,} expected: another version, or another page")
    return start


def _remember(response: Any, tag: Path) -> None:
    etag, date = response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")
    if version := date if etag.startswith("W/") or not etag else etag:  # a weak tag does not vouch for bytes
        tag.write_text(version)
    else:
        tag.unlink(missing_ok=True)


def _chunks(response: Any) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(str(error) or type(error).__name__) from None
        if not chunk:
            return
        yield chunk


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
    return "" if digest.hexdigest() == wanted else f"{algorithm} {digest.hexdigest()}, {wanted} expected"
