"""Unpack a downloaded archive: inside its folder, all or nothing, and beside the user's files."""

from __future__ import annotations

import filecmp
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from gzip import BadGzipFile
from pathlib import Path

from spml.data.download.resumable import Advance, silent
from spml.errors import DataError

# Errors of tarfile and zipfile about a damaged archive.
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, BadGzipFile, zlib.error, EOFError)


def marker(archive: str, folder: Path) -> Path:
    """Return the file that marks an archive as unpacked into a folder."""
    return folder / f".{archive}.unpacked"


def unpack(archive: Path, folder: Path, expected: int, *, advance: Advance = silent) -> None:
    """Unpack a .tar, .tgz or .zip file into a folder, unless that was done before.

    The content is unpacked into a temporary folder and moved at the end, so that an interrupted
    call leaves nothing that a later call would take for complete. Existing files are kept and must
    have the same content.

    Args:
        archive: the file.
        folder: destination of its content.
        expected: approximate number of unpacked bytes, for the progress.
        advance: called with the bytes unpacked.
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
        _merge(beside, folder)
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
