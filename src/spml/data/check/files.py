"""Checks of files: whether they exist and can be decoded, and which of them are the same."""

from __future__ import annotations

import hashlib
import stat
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from spml.data.check.problems import Place, Problem
from spml.data.table import SPLITS, LabelTable
from spml.errors import DataError
from spml.machine import decoders

Advance = Callable[[str, int, int], None]
WINDOW = 512  # files that are queued for the threads at once
MISSING = (FileNotFoundError, NotADirectoryError)

Out = TypeVar("Out")
Copies = tuple[Place, ...]  # two or more rows with the same picture


def inspect_files(
    tables: dict[str, LabelTable],
    *,
    decoded: bool = True,
    size: int | None = None,
    advance: Advance | None = None,
) -> tuple[list[Problem], list[Copies]]:
    """Return missing and unreadable pictures, and groups of rows with the same bytes, in order."""
    places = [
        Place(split, row)
        for split in SPLITS
        if split in tables
        for row in range(len(tables[split]))
    ]
    broken: dict[Place, Problem] = {}
    lengths: dict[Place, int] = {}

    def refuse(place: Place, kind: str, text: str) -> None:
        broken[place] = Problem(kind, f"{tables[place.split].where(place.row)}{text}", *place)

    def path(place: Place) -> Path:
        return tables[place.split].file(place.row)

    folders: dict[Path, dict[str, str]] = {}
    for place, length in _threaded(
        "looking for files", lambda at: _length(path(at)), places, advance
    ):
        if isinstance(length, int):
            lengths[place] = length
            continue
        kind, text = length
        if kind == "missing":
            text += _similar_file(path(place), folders)
        refuse(place, kind, text)
    shared = {length for length, count in Counter(lengths.values()).items() if count > 1}
    to_read = [place for place, length in lengths.items() if decoded or length in shared]
    what = "decoding pictures" if decoded else "comparing files"
    same: dict[str, list[Place]] = defaultdict(list)
    for place, (error, digest) in _threaded(
        what, lambda at: _contents(path(at), decoded, size, lengths[at] in shared), to_read, advance
    ):
        if error:
            refuse(place, "unreadable", error)
        elif digest:
            same[digest].append(place)
    ordered = [broken[place] for place in places if place in broken]
    return ordered, [tuple(group) for group in same.values() if len(group) > 1]


def inspect_arrays(tables: dict[str, LabelTable]) -> list[Copies]:
    """Return the rows of equal pictures in arrays; features may be equal by chance."""
    same: dict[bytes, list[Place]] = defaultdict(list)
    for split in SPLITS:
        x = tables[split].x if split in tables else None
        if x is not None and x.ndim == 4:
            for row, picture in enumerate(x):
                same[hashlib.sha256(picture.tobytes()).digest()].append(Place(split, row))
    return [tuple(group) for group in same.values() if len(group) > 1]


def _threaded(
    what: str, work: Callable[[Place], Out], places: Sequence[Place], advance: Advance | None
) -> Iterator[tuple[Place, Out]]:
    """Yield each place with the result of its work, in order, from threads."""
    pool = ThreadPoolExecutor(decoders())
    try:
        for start in range(0, len(places), WINDOW):
            window = places[start : start + WINDOW]
            for done, (place, out) in enumerate(
                zip(window, pool.map(work, window), strict=True), start + 1
            ):
                yield place, out
                if advance:
                    advance(what, done, len(places))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _length(path: Path) -> int | tuple[str, str]:
    """Return the bytes of a file, or the kind of problem and its description."""
    try:
        status = path.stat()
    except MISSING:
        return "missing", f"{path}: no such file"
    except (OSError, ValueError) as error:
        return "unreadable", f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})"
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
        return "unreadable", f"{path}: a folder, pipe or device, not a picture"
    return status.st_size or ("unreadable", f"{path}: the file is empty")


def _similar_file(path: Path, folders: dict[Path, dict[str, str]]) -> str:
    """Return `; there is 'A.JPG'` if a file differs only by case or composed accents, else ""."""
    if path.parent not in folders:
        folders[path.parent] = {}
        with suppress(OSError, ValueError):
            names = [file.name for file in path.parent.iterdir()]
            folders[path.parent] = {_folded(name): name for name in names}
    other = folders[path.parent].get(_folded(path.name))
    return f"; there is {other!r}" if other else ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _contents(
    path: Path, decoded: bool, size: int | None, compared: bool
) -> tuple[str | None, str | None]:
    """Return why a picture cannot be decoded, and the hash of its bytes if it is compared."""
    try:
        if decoded:
            from spml.data.images.decode import decode

            decode(path, size)
        if not compared:
            return None, None
        with path.open("rb") as file:
            return None, hashlib.file_digest(file, "sha256").hexdigest()
    except DataError as error:
        return str(error), None
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror or error})", None
