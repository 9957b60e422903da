"""Files: reading with errors that name file, line and remedy, and all-or-nothing writes."""

from __future__ import annotations

import errno
import glob
import json
import os
import platform
import re
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from spml.errors import DAMAGED, DataError, UserError

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

Record = dict[str, Any]

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
NEARLY_FULL = 64 << 20  # bytes: with less free, a failed write of a library is put down to the disk
DEEPEST = 64  # levels of a JSON file; more come from damage, and would exhaust the stack
ABANDONED = 86400  # seconds after which an unfinished file of another machine is removed
BROKEN_ARRAYS = (  # errors of numpy and zipfile about a damaged file
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, EOFError, OverflowError),
    *(MemoryError, NotImplementedError, RuntimeError, SyntaxError, TokenError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
NOT_TEXT = re.compile("[\0\udc80-\udcff]")  # "surrogateescape" maps a byte that is not UTF-8 there


def lines(path: Path, bad: list[tuple[int, str]] | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, with their line ends (LF, CRLF or CR).

    A byte order mark is skipped.

    Args:
        path: the file.
        bad: collects the number of each line that is not text, and the reason, so that the other
            lines can still be read. If None, the first such line raises a DataError.
    """
    with (
        opening(path),
        path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file,
    ):
        for number, text in enumerate(file, 1):
            if match := NOT_TEXT.search(text):
                reason = _not_text(ord(match[0]) & 0xFF)
                if bad is None:
                    raise DataError(f"{path}, line {number}: {reason}")
                bad.append((number, reason))
            yield text


def _not_text(byte: int) -> str:
    problem = (
        f"byte 0x{byte:02x} is not UTF-8" if byte else "a NUL byte; this is no text, or UTF-16"
    )
    return f"{problem}; save the file as UTF-8 (Excel: CSV UTF-8)"


def encodable(text: str) -> bool:
    """Whether UTF-8 can hold a text: not if it has half of a character, or another's bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def split_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the words of every line that is not blank."""
    for number, line in enumerate(lines(path), 1):
        if cells := line.split():
            yield number, cells


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn an OSError about a file into a DataError that names it; refuse pipes."""
    try:
        if path.is_fifo():  # opening it would wait for a writer
            raise DataError(f"{path}: a pipe, not a file; write its output to a file first")
        yield
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}; check the path") from None


@contextmanager
def sound(
    path: Path, errors: tuple[type[Exception], ...], problem: str, remedy: str = ""
) -> Iterator[None]:
    """Turn a library's errors about a damaged file, and those of the system, into a DataError."""
    try:
        with opening(path):
            yield
    except DataError:
        raise
    except errors as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: {problem} ({reason}){remedy}") from None


def folder_with(root: Path, starts: Sequence[str], wanted: str, remedy: str) -> Path:
    """Return the first folder of `starts`, below `root`, that contains `wanted`."""
    for start in starts:
        if (root / start / wanted).exists():
            return root / start if start != "." else root
    raise DataError(f"{root}: no {wanted} there; {remedy}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write to, which replaces `path` if the block succeeds and is removed if not.

    An OSError of the write becomes a UserError that names `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = _beside(path)
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if error.filename is not None and str(error.filename) != str(beside):
            raise
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):
            beside.unlink()


@contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """Give a folder to write into, whose files replace those of `out` if the block succeeds.

    An existing folder is kept and only its contents are replaced: it may be a link, a mount point
    or the current directory.
    """
    exists = out.is_dir()
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = _beside(out.resolve())
    if exists:
        beside = out / beside.name
    try:
        beside.mkdir()
        yield beside
        if not exists:
            beside.rename(out)
            sync_folder(out.parent)
            return
        for old in [path for path in out.iterdir() if path != beside]:
            _remove(old)
        for new in list(beside.iterdir()):
            new.rename(out / new.name)
        sync_folder(out)
    except OSError as error:
        if error.filename is not None and not Path(error.filename).is_relative_to(beside):
            raise
        raise write_error(out, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _beside(path: Path) -> Path:
    """Return the place beside `path` to write to; remove what killed processes left there."""
    machine = f"{zlib.crc32(platform.node().encode()):08x}"
    for unfinished in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        writer = re.fullmatch(r"(?:([0-9a-f]{8})-)?(\d+)", unfinished.name[len(path.name) + 2 : -5])
        if writer is not None and _abandoned(unfinished, int(writer[2]), writer[1] == machine):
            _remove(unfinished)
    return path.with_name(f".{path.name}.{machine}-{os.getpid()}.part")


def _abandoned(unfinished: Path, process: int, here: bool) -> bool:
    """Whether no process writes the file any more."""
    if here and process != os.getpid():
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False
    with suppress(OSError):
        return here or time.time() - unfinished.lstat().st_mtime > ABANDONED
    return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, so that a power cut undoes no rename."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system cannot do it
            raise
    finally:
        os.close(handle)


def contents(folder: Path) -> list[Path]:
    """Return the entries of a folder without the unfinished files of killed processes."""
    return [
        path
        for path in folder.iterdir()
        if not (path.name.startswith(".") and path.suffix == ".part")
    ]


def write_error(path: Path, error: Exception) -> UserError:
    """Return the UserError of a failed write, from an error of the system or of a library."""
    if isinstance(error.__context__, OSError):  # torch reports it by an error of its own
        error = error.__context__
    if isinstance(error, OSError):
        full, reason = error.errno in DISK_FULL, error.strerror or str(error)
    else:
        full = shutil.disk_usage(path.parent).free < NEARLY_FULL
        reason = " ".join(str(error).split())[:150]
    earlier = "; the one written before is whole" if path.exists() else ""
    return UserError(f"{path} cannot be written: {'the disk is full' if full else reason}{earlier}")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, all or nothing."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, all or nothing."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def refuse_existing(out: Path, remedy: str = "give the name of a new file") -> None:
    """Raise UserError if `out` exists: nothing is replaced without the user's consent."""
    if os.path.lexists(out):
        raise UserError(f"{out} is already there; {remedy}")


def replaces_something(out: Path, overwrite: bool) -> bool:
    """Whether writing to `out` replaces something; raise UserError if it must not."""
    if not os.path.lexists(out) or (out.is_dir() and not contents(out)):
        return False
    if not overwrite:
        raise UserError(f"{out} is already there; give --overwrite or another --out")
    return True


def read_json(path: Path, remedy: str = DAMAGED) -> Record:
    """Read the JSON object in a file; an error ends with the remedy."""
    return parse_object(read_text(path, remedy), str(path), remedy)


def read_text(path: Path, remedy: str = DAMAGED) -> str:
    """Read a UTF-8 text file; an error ends with the remedy."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}; {remedy}") from error


def parse_object(text: str, where: str, remedy: str = DAMAGED) -> Record:
    """Parse a JSON object; `where` names its file, and its line if the file has several."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}); {remedy}") from error
    if not isinstance(value, dict):
        raise UserError(f"{where}: not a JSON object; {remedy}")
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if level:
        raise UserError(f"{where}: nested in more than {DEEPEST} levels; {remedy}")
    return value


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = (), remedy: str = DAMAGED
) -> dict[str, Array] | None:
    """Read the named arrays of an .npz file; None if there is no such file.

    A missing array is an error if it is required, and left out if it is optional.
    """
    import numpy as np  # loaded here so that `spml --help` stays quick

    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            missing = [name for name in required if name not in stored.files]
            present = [name for name in (*required, *optional) if name in stored.files]
            arrays = {name: stored[name] for name in present}
    except (OSError, *BROKEN_ARRAYS) as error:
        raise UserError(f"{path} is not a readable .npz file: {error}; {remedy}") from error
    if missing:
        raise UserError(f"{path} has no array {', '.join(missing)}; {remedy}")
    return arrays


def demand(record: Record, names: Sequence[str], where: object) -> None:
    """Raise UserError if a record lacks one of the names."""
    if missing := [name for name in names if name not in record]:
        raise UserError(f"{where} lacks {', '.join(missing)}: it is not whole; {DAMAGED}")


def number(record: Record, key: str, path: Path) -> float | None:
    """Return a number of a record, or None if it is absent or null."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{path}: {key!r} must be a number, it is {value!r}")
    return float(value)
