"""What a model is to look at, one item after another: nothing is read before it is asked for."""

from __future__ import annotations

import heapq
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from spml.data.readers.arrays import Array
from spml.data.readers.builder import OnError, report
from spml.data.readers.folders import PICTURES
from spml.data.readers.items_only import bare_arrays, image_column
from spml.errors import DataError, UserError
from spml.model import ModelInfo

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
ARRAYS = (".npz", ".npy")
MEANT = PICTURES | {
    ".heic",
    ".heif",
    ".avif",
}  # phones write these: they are said to be unreadable, not passed over
STANDARD = "-"  # standard input, as an input
SORTED = 65536  # names of a folder that are held in memory; a larger one is read several times
PATH_LIMIT = 65536  # bytes of a path on standard input
CHUNK = 65536  # bytes read from it together

Note = Callable[[str], None]


class Source(Protocol):
    """A stream of bytes that gives what has come in, without waiting for more."""

    def read1(self, size: int, /) -> bytes:
        """Up to so many bytes; none at the end."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something to predict.

    Attributes:
        name: what predictions call it.
        path: of the picture file; None where it is an array.
        x: a feature vector or a uint8 picture (3, H, W); None where it is a file.
        where: the start of a message about it.
    """

    name: str
    path: Path | None = None
    x: Array | None = None
    where: str = ""


class Inputs:
    """Pictures, folders of pictures, tables, arrays and paths on standard input, as items in the order given.

    Folders are walked in sorted order; a link to a folder is followed once, and not where it leads back to a folder it
    lies in. Rows of one table that name the same image count once, for which its names are kept in memory; what two
    inputs both name is given twice.

    Args:
        given: paths, or "-".
        info: of the model, which takes pictures or feature vectors.
        null: paths on standard input end in NUL, not in a line end.
        on_error: told of each input that cannot be taken, which is then left out; without it, the first is raised.
        note: told of what is passed over without being an error.
    """

    def __init__(
        self,
        given: Sequence[str | Path],
        info: ModelInfo,
        *,
        null: bool = False,
        on_error: OnError | None = None,
        note: Note | None = None,
    ) -> None:
        self.given, self.null, self.on_error = [str(one) for one in given], null, on_error
        self.note: Note = note or (lambda text: None)
        self.features: int | None = (
            info.preprocessing["features"] if _takes_features(info) else None
        )
        self._linked: set[tuple[int, int]] = set()
        if not self.given:
            raise UserError("nothing to predict; give pictures, folders or a table")
        for one in self.given:
            if self.features is not None and Path(one).suffix.lower() not in ARRAYS:
                wanted = f".npz or .npy files with x of {self.features} features"
                raise UserError(f"this model takes {wanted}; {one} is something else")

    def __iter__(self) -> Iterator[Item]:
        for one in self.given:
            try:
                yield from self._items(one)
            except DataError as error:  # of the input as a whole
                report(error, self.on_error)
            except OSError as error:  # such as a name that is too long
                report(
                    DataError(f"{one}: cannot be read ({error.strerror or error}); check the path"),
                    self.on_error,
                )

    def _items(self, one: str) -> Iterator[Item]:
        path, suffix = Path(one), Path(one).suffix.lower()
        if one == STANDARD:
            return (
                Item(text, Path(text)) for text in listed(cast(Source, sys.stdin.buffer), self.null)
            )
        if path.is_dir():
            return self._folder(path)
        if suffix in ARRAYS:
            return self._arrays(path)
        return self._table(path) if suffix in TABLES else iter([Item(one, path)])

    def _folder(self, path: Path) -> Iterator[Item]:
        found = False
        self._linked = set()  # what another input has led to is given again, as other names are
        for file in self._walk(path, ()):
            found = True
            yield Item(str(file), file)
        if not found:
            raise DataError(f"{path}: no pictures in this folder ({', '.join(sorted(PICTURES))})")

    def _walk(self, folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
        """Pictures of a folder and of those in it; `above` are the folders it lies in, by device and number."""
        try:
            status = folder.stat()
            here = (status.st_dev, status.st_ino)
            link = folder.is_symlink()
            if here in above or (link and here in self._linked):
                self.note(f"{folder}: a link to a folder that was already read; not followed")
                return
            if link:
                self._linked.add(here)
            for name in sorted_names(folder):
                inner = folder / name
                if inner.suffix.lower() in MEANT and not inner.is_dir():
                    yield inner
                elif inner.is_dir():
                    yield from self._walk(inner, (*above, here))
        except OSError as error:
            report(
                DataError(f"{folder}: cannot be read ({error.strerror}); check its permissions"),
                self.on_error,
            )

    def _table(self, path: Path) -> Iterator[Item]:
        seen: set[str] = set()
        for where, image in image_column(path, self.on_error):
            if image not in seen:
                seen.add(image)
                yield Item(str(path.parent / image), path.parent / image, where=where)

    def _arrays(self, path: Path) -> Iterator[Item]:
        names, x, broken = bare_arrays(path, self.on_error)
        if (x.ndim == 2) != (self.features is not None):
            wanted = "pictures" if self.features is None else f"x of {self.features} features"
            raise UserError(f"{path}: x is {x.dtype} {x.shape}; this model takes {wanted}")
        if self.features is not None and x.shape[1] != self.features:
            raise UserError(f"{path}: x has {x.shape[1]} features, the model takes {self.features}")
        for row, name in enumerate(names):
            if row not in broken:
                yield Item(name, x=x[row], where=f"{path}, row {row}: ")


def _takes_features(info: ModelInfo) -> bool:
    return bool(info.preprocessing["kind"] == "features")


def sorted_names(folder: Path, most: int = SORTED) -> Iterator[str]:
    """The names in a folder in order, with no more than `most` of them in memory; hidden ones are not meant.

    A folder with more is read once for each `most` names.
    """
    last = ""
    while True:
        with os.scandir(folder) as entries:
            names = heapq.nsmallest(
                most, (e.name for e in entries if e.name > last and not e.name.startswith("."))
            )
        yield from names
        if len(names) < most:
            return
        last = names[-1]


def listed(stream: Source, null: bool = False) -> Iterator[str]:
    """Paths as they come in: one a line, or ended by NUL; blank lines are passed over."""
    end, rest = b"\0" if null else b"\n", b""
    while chunk := stream.read1(CHUNK):
        if not null and b"\0" in chunk:  # no path has one within
            raise DataError("standard input: the paths end in NUL; use --null (-0)")
        *whole, rest = (rest + chunk).split(end)
        for path in whole:
            if text := os.fsdecode(path if null else path.rstrip(b"\r")):
                yield text
        if len(rest) > PATH_LIMIT:
            ended = "NUL" if null else "a line end"
            raise DataError(
                f"standard input: {PATH_LIMIT} bytes without {ended}; give one path a line, or use --null"
            )
    if text := os.fsdecode(rest if null else rest.rstrip(b"\r\n")):
        yield text
