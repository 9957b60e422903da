"""Files that are either whole or not there: written beside, then moved into place."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spml.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT)
LITTLE = 64 << 20  # bytes: with less left on the disk, that is why a file could not be written


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes `path` when the block ends well and vanishes when it does not.

    What the system says against writing to it is a UserError that names `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        if error.filename is not None and str(error.filename) != str(beside):
            raise
        raise unwritten(path, error) from error
    finally:
        with suppress(OSError):
            beside.unlink()


@contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """A folder to write into, whose files become those of `out` when the block ends well and vanish when it does not.

    A folder that is there stays the one it is: it may be a link, a disk of its own, or the one that we are in.
    """
    there = out.is_dir()
    out.parent.mkdir(parents=True, exist_ok=True)
    name = f".{out.resolve().name}.{os.getpid()}.part"
    beside = out / name if there else out.with_name(name)
    try:
        beside.mkdir()
        yield beside
        if not there:
            beside.rename(out)
            return
        for old in [path for path in out.iterdir() if path != beside]:
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        for new in list(beside.iterdir()):
            new.rename(out / new.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def held(folder: Path) -> list[Path]:
    """What a folder holds, but for what a killed process had not finished writing."""
    return [
        path
        for path in folder.iterdir()
        if not (path.name.startswith(".") and path.suffix == ".part")
    ]


def unwritten(path: Path, error: Exception) -> UserError:
    """A line on a file that could not be written, from the error of the system or of a library."""
    if isinstance(error, OSError):
        full, reason = error.errno in FULL, error.strerror or str(error)
    else:
        full, reason = (
            shutil.disk_usage(path.parent).free < LITTLE,
            " ".join(str(error).split())[:150],
        )
    kept = "; the one written before is whole" if path.exists() else ""
    return UserError(f"{path} cannot be written: {'the disk is full' if full else reason}{kept}")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, all or nothing."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, all or nothing."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
