"""Download large files that resume after a break, and unpack archives safely.

A download is retried after a transient fault and checked at the end. Archives are unpacked inside
their folder, all or nothing, and beside the user's files.
"""

from __future__ import annotations

import filecmp
import hashlib
import http.client
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from gzip import BadGzipFile
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from spml.data.benchmarks import Archive
from spml.errors import DataError, UserError

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # HTTP codes worth another try
CHUNK = 2**20
TIMEOUT = 60.0  # seconds without a byte
LONGEST_WAIT = 60.0  # seconds between two tries
# Errors of tarfile and zipfile about a damaged archive.
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, BadGzipFile, zlib.error, EOFError)

Advance = Callable[[str, int, int], None]  # current step, bytes done, bytes in all


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


def download(
    remote: Archive,
    folder: Path,
    *,
    advance: Advance = silent,
    attempts: int = 6,
    wait: float = 1.0,
) -> Path:
    """Download a file unless it exists, check its content, and return its path.

    Received bytes are kept in `NAME.part`, from which a later call resumes. An address is abandoned
    after a number of `attempts` in a row without a new byte; `wait` is in seconds, and doubles.
    """
    path = folder / remote.name
    if path.exists():
        if problem := _problem(path, remote, advance):
            raise DataError(f"{path}: {problem}; remove it and run again")
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part, lock = folder / f"{remote.name}.part", folder / f"{remote.name}.part.lock"
    try:
        with FileLock(lock, blocking=False), part.open("ab") as file:
            try:
                _complete(remote, file, folder, advance, attempts, wait)
                file.flush()
                os.fsync(file.fileno())
            finally:
                lock.unlink(missing_ok=True)
    except Timeout:
        raise UserError(f"{part}: another process is downloading it; wait for that one") from None
    if problem := _problem(part, remote, advance):
        part.unlink()
        raise DataError(
            f"{remote.name}: {problem}; "
            "the download was deleted: run again, or get the file elsewhere"
        )
    part.replace(path)
    return path


def left(remote: Archive, folder: Path) -> int:
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


def _complete(
    remote: Archive, file: BinaryIO, folder: Path, advance: Advance, attempts: int, wait: float
) -> None:
    """Fill the part file, or raise DataError with the error of each address."""
    errors: list[str] = []
    for address in remote.addresses:
        failures, problem = 0, ""
        while failures < attempts:
            before = _size(file)
            try:
                return _transfer(address, remote, file, advance)
            except DataError as error:
                failures, problem = attempts, str(error)
            except urllib.error.HTTPError as error:
                error.close()
                failures = failures + 1 if error.code in TRANSIENT else attempts
                problem = f"HTTP {error.code} {error.reason}"
            except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
                failures = 1 if _size(file) > before else failures + 1
                problem = str(getattr(error, "reason", error)) or type(error).__name__
            if failures < attempts:
                time.sleep(min(wait * 2 ** (failures - 1), LONGEST_WAIT))
        errors.append(f"{address}: {problem}")
    part = f"{_size(file):,} of {remote.size:,} bytes are kept: " if _size(file) else ""
    raise DataError(
        f"{remote.name} could not be downloaded ({'; '.join(errors)}); {part}run again to resume, "
        f"or put the file into {folder} yourself"
    )


def _transfer(address: str, remote: Archive, file: BinaryIO, advance: Advance) -> None:
    """Request the missing bytes and append them, or all bytes if the server sends no ranges."""
    have = _size(file)
    if have > remote.size:  # a part of another file
        have = file.truncate(0)
    if have == remote.size:
        return
    headers = {"User-Agent": "spml", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = file.truncate(0)
        offered = have + int(response.headers.get("Content-Length") or remote.size - have)
        if offered != remote.size:
            raise DataError(
                f"offers {offered:,} bytes, {remote.size:,} expected: "
                "another version, or another page"
            )
        while have < remote.size:
            if not (chunk := response.read(min(CHUNK, remote.size - have))):
                raise ConnectionError(f"broke off after {have:,} bytes")
            file.write(chunk)
            have += len(chunk)
            advance(remote.name, have, remote.size)


def _size(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)


def _problem(path: Path, remote: Archive, advance: Advance) -> str:
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


def marker(archive: str, folder: Path) -> Path:
    """Return the file that marks an archive as unpacked into a folder."""
    return folder / f".{archive}.unpacked"


def unpack(archive: Path, folder: Path, expected: int, *, advance: Advance = silent) -> None:
    """Unpack a .tar, .tgz or .zip file into a folder, unless that was done before.

    The content is unpacked into a temporary folder and moved at the end, so that an interrupted
    call leaves nothing that a later call would take for complete. Existing files are kept and must
    have the same content. `expected` is an approximate number of bytes, for the progress.
    """
    done = marker(archive.name, folder)
    if done.exists():
        return
    beside = folder / f".{archive.name}.unpacking"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    written = 0
    try:
        for size in _extract(archive, beside):
            written += size
            advance(f"unpacking {archive.name}", written, expected)
        os.sync()  # a power cut must not leave half of a file in place
        _merge(beside, folder)
        os.sync()  # nor a mark without the files
    except DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            f"{archive}: cannot be unpacked ({reason}); remove it and download it again"
        ) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    done.touch()


def _extract(archive: Path, folder: Path) -> Iterator[int]:
    """Extract one member after another and yield its size; none can leave the folder."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                packed.extract(info, folder)
                yield info.file_size
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            tar.extract(member, folder, filter="data")
            yield member.size


def _merge(beside: Path, folder: Path) -> None:
    """Move the unpacked files into place, after a comparison with the files that exist."""
    moves = {
        path: folder / path.relative_to(beside) for path in beside.rglob("*") if not path.is_dir()
    }
    existing = {path: target for path, target in moves.items() if os.path.lexists(target)}
    for path, target in existing.items():
        if not (target.is_file() and filecmp.cmp(path, target, shallow=False)):
            raise DataError(f"{target}: not what the archive holds; move it away and run again")
    for path in moves.keys() - existing.keys():
        moves[path].parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, moves[path])  # a folder of the root may lie on another disk
