"""Finding files and reading text line by line, with errors that name the file and the line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spml.errors import DataError


def lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, with or without byte order mark, line ends included."""
    with opening(path), path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                bad = raw[error.start : error.start + 1].hex()
                raise DataError(f"{path}, line {number}: byte 0x{bad} is not UTF-8; save the file as UTF-8") from None
            if "\0" in text:
                raise DataError(
                    f"{path}, line {number}: a NUL byte; this is not a text file, or it is UTF-16: save as UTF-8"
                )
            yield text


def words(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and words of every line that is not blank."""
    for number, line in enumerate(lines(path), 1):
        if found := line.split():
            yield number, found


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn what the operating system says of a file into a DataError that names it."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}; check the path") from None


def folder_with(root: Path, starts: Sequence[str], wanted: str, remedy: str) -> Path:
    """The first of the folders below root that holds what is wanted."""
    for start in starts:
        if (root / start / wanted).exists():
            return root / start if start != "." else root
    raise DataError(f"{root}: no {wanted} there; {remedy}")
