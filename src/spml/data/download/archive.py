"""Unpack an archive safely: plain files inside the folder, within limits, all or nothing."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO

from spml.data.download.remote import Limits
from spml.data.download.request import Advance
from spml.data.download.resumable import silent
from spml.errors import DataError

CHUNK = 2**20
DAMAGED = (  # errors of tarfile and zipfile about a damaged file
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, struct.error),
    *(EOFError, ValueError, OverflowError, KeyError, NotImplementedError, RuntimeError),
)
# OSErrors that the archive causes, not the disk.
OF_ARCHIVE = (None, errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ)


@dataclass(frozen=True)
class _Member:
    name: str
    kind: str  # "file", "folder", or another kind, which is refused
    open: Callable[[], IO[bytes]]


def marker(archive: str, folder: Path) -> Path:
    """Return the file that marks an archive as unpacked into a folder."""
    return folder / f".{archive}.unpacked"


def unpack(archive: Path, folder: Path, limits: Limits, *, advance: Advance = silent) -> None:
    """Unpack a .tar, .tgz or .zip file into a folder, unless that was done before.

    The content is unpacked into a temporary folder and moved at the end, so that an interrupted
    call leaves nothing that a later call would take for complete. Existing files are kept and must
    have the same content.

    Args:
        archive: the file.
        folder: destination of its content.
        limits: limits on the unpacked content.
        advance: called with the bytes written, of `limits.size`.
    """
    done = marker(archive.name, folder)
    if done.exists():
        return
    beside = folder / f".{archive.name}.unpacking"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        _extract(archive, beside, limits, advance)
        _merge(beside, folder)
    except (*DAMAGED, OSError) as error:
        of_disk = isinstance(error, OSError) and error.errno not in OF_ARCHIVE
        if isinstance(error, DataError) or of_disk:
            raise
        reason = str(error) or type(error).__name__
        raise DataError(
            f"{archive}: cannot be unpacked ({reason}); remove it and download it again"
        ) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    done.touch()


def _extract(archive: Path, folder: Path, limits: Limits, advance: Advance) -> None:
    most = min(limits.size, int(limits.ratio * archive.stat().st_size))
    written, label = 0, f"unpacking {archive.name}"
    with _members(archive) as members:
        for number, member in enumerate(members, 1):
            place = folder / _inside(archive, member)
            if number > limits.files:
                problem = f"more than {limits.files:,} members; not unpacked"
                raise DataError(f"{archive}: {problem}: is it the right file?")
            if member.kind == "folder":
                _make_folder(archive, member, place)
                continue
            _make_folder(archive, member, place.parent)
            if place.is_dir():
                raise DataError(f"{archive}: {member.name!r} is a file and a folder; not unpacked")
            with member.open() as source, place.open("wb") as target:
                while chunk := source.read(CHUNK):
                    written += len(chunk)
                    if written > most:
                        raise DataError(
                            f"{archive}: unpacks to more than {most:,} bytes; is it the right file?"
                        )
                    target.write(chunk)
            advance(label, written, limits.size)


def _make_folder(archive: Path, member: _Member, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{archive}: {member.name!r} is inside a file; not unpacked") from None


def _inside(archive: Path, member: _Member) -> Path:
    """Return the relative path of a member; refuse links and paths outside the folder."""
    path, shown = PurePosixPath(member.name), repr(member.name[:200])
    odd = not path.parts and member.kind != "folder"
    drive = os.name == "nt" and any(letter in member.name for letter in ":\\")
    if path.is_absolute() or ".." in path.parts or "\0" in member.name or odd or drive:
        raise DataError(
            f"{archive}: {shown} points outside the folder; "
            "nothing was unpacked: do not trust this file"
        )
    if member.kind not in ("file", "folder"):
        raise DataError(
            f"{archive}: {shown} is a {member.kind}; nothing was unpacked: do not trust this file"
        )
    return Path(*path.parts)


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[_Member]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            yield _zip_members(packed)
    else:
        with tarfile.open(archive) as tar:
            yield _tar_members(tar)


def _zip_members(packed: zipfile.ZipFile) -> Iterator[_Member]:
    kinds = {0: "file", stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    for info in packed.infolist():
        kind = kinds.get(stat.S_IFMT(info.external_attr >> 16), "special file")
        folder = info.filename.endswith("/")  # is_dir() fails on the empty name of a damaged entry
        kind = "folder" if folder and kind == "file" else kind
        yield _Member(info.orig_filename, kind, partial(packed.open, info))


def _tar_members(tar: tarfile.TarFile) -> Iterator[_Member]:
    for info in tar:
        kind = "special file"
        if info.issym() or info.islnk():
            kind = "link"
        elif info.isfile():
            kind = "file"
        elif info.isdir():
            kind = "folder"
        yield _Member(info.name, kind, partial(_open, tar, info))


def _open(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(info)
    assert file is not None  # only other members have no content
    return file


def _merge(beside: Path, folder: Path) -> None:
    """Move the unpacked files into place, after a comparison with the files that exist."""
    moves = [(path, folder / path.relative_to(beside)) for path in _moved(beside, beside, folder)]
    for path, target in moves:
        if target.exists() and not (
            path.is_file() and target.is_file() and filecmp.cmp(path, target, shallow=False)
        ):
            raise DataError(f"{target}: not what the archive holds; move it away and run again")
    for path, target in moves:
        if not target.exists():
            shutil.move(path, target)  # a folder of the root may lie on another disk


def _moved(place: Path, beside: Path, folder: Path) -> Iterator[Path]:
    """Yield the topmost paths to move: files, and folders that do not exist yet."""
    for path in sorted(place.iterdir()):
        if path.is_dir() and (folder / path.relative_to(beside)).is_dir():
            yield from _moved(path, beside, folder)
        else:
            yield path
