"""Finding files and reading text line by line, with errors that name the file and the line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spml.errors import DataError

NOT_TEXT = re.compile(
    "[\0\udc80-\udcff]"
)  # the latter is what "surrogateescape" makes of a byte that is not UTF-8


def lines(path: Path, bad: list[tuple[int, str]] | None = None) -> Iterator[str]:
    """The lines of a UTF-8 file, with or without byte order mark; they end in LF, CRLF or CR, which are included.

    Args:
        path: the file.
        bad: the number of each line that is no text, and why, go there, so that the others can still be read; without
            it, the first is a DataError.
    """
    with (
        opening(path),
        path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file,
    ):
        for number, text in enumerate(file, 1):
            if found := NOT_TEXT.search(text):
                byte = ord(found[0]) & 0xFF
                said = (
                    f"byte 0x{byte:02x} is not UTF-8"
                    if byte
                    else "a NUL byte; this is no text, or UTF-16"
                )
                said += "; save the file as UTF-8 (Excel: CSV UTF-8)"
                if bad is None:
                    raise DataError(f"{path}, line {number}: {said}")
                bad.append((number, said))
            yield text


def words(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and words of every line that is not blank."""
    for number, line in enumerate(lines(path), 1):
        if found := line.split():
            yield number, found


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn what the operating system says of a file into a DataError that names it; refuse what may never end."""
    try:
        if path.is_fifo():  # opening it would wait for a writer
            raise DataError(
                f"{path}: a pipe, not a file; write what comes out of it to a file first"
            )
        yield
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}; check the path") from None


def folder_with(root: Path, starts: Sequence[str], wanted: str, remedy: str) -> Path:
    """The first of the folders below root that holds what is wanted."""
    for start in starts:
        if (root / start / wanted).exists():
            return root / start if start != "." else root
    raise DataError(f"{root}: no {wanted} there; {remedy}")
