"""The inputs of a prediction as a stream of items, each read when it is needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import cast

import numpy as np

from spml.data.images.loader import Item
from spml.data.readers.arrays import (
    RowCheck,
    load_array,
    load_arrays,
    pictures_or_features,
    strings,
)
from spml.data.readers.builder import OnError, Reading, report
from spml.data.readers.columns import Columns, feature, feature_columns, position
from spml.data.readers.columns import listed as column_names
from spml.data.readers.folders import PICTURES
from spml.data.readers.parquet import SUFFIXES
from spml.data.readers.read import TABLES, WITH_ARRAYS
from spml.data.readers.tabular import builder_of, item_of, named_columns, opened
from spml.errors import DataError, UserError
from spml.model import ModelInfo

# Phones write these formats: they are reported as unreadable, not skipped.
INTENDED = PICTURES | {".heic", ".heif", ".avif"}
STANDARD = "-"  # standard input, as an input
PATH_LIMIT = 65536  # bytes of a path on standard input
CHUNK = 65536  # bytes per read of standard input
EXAMPLE = "one of them 'image'"
REMEDY = (
    "rename the column of paths to 'image', give --image-column, "
    "or give a plain list of paths on standard input (-)"
)

Note = Callable[[str], None]


class Inputs:
    """Items of pictures, folders of pictures, tables, arrays and paths on standard input, in order.

    Folders are walked in sorted order. A link to a folder is followed once, and never to a folder
    that contains it. Rows of one table with the same image count once, so a table's names stay in
    memory. A picture named by two inputs is an item of each.

    `on_error` receives each unusable input, which is then left out; without it, the first is
    raised. `note` receives what is skipped without being an error. With `null`, paths on standard
    input end in NUL instead of a line end.
    """

    def __init__(
        self,
        inputs: Sequence[str | Path],
        info: ModelInfo,
        *,
        null: bool = False,
        columns: Columns | None = None,
        on_error: OnError | None = None,
        note: Note | None = None,
    ) -> None:
        self.inputs = [str(one) for one in inputs]
        self.null, self.on_error = null, on_error
        self.note: Note = note or (lambda text: None)
        self.columns = columns or Columns()
        self.named: list[str] = info.preprocessing.get("columns") or []
        vectors = info.preprocessing["kind"] == "features"
        self.features: int | None = info.preprocessing["features"] if vectors else None
        self._linked: set[tuple[int, int]] = set()
        if not self.inputs:
            raise UserError("nothing to predict; give pictures, folders or a table")
        takes = {*TABLES, *WITH_ARRAYS} - {*SUFFIXES}
        for one in self.inputs:
            if self.features is not None and Path(one).suffix.lower() not in takes:
                wanted = f"CSV, .npz or .npy files of {self.features} features"
                raise UserError(f"this model takes {wanted}; {one} is something else")

    def __iter__(self) -> Iterator[Item]:
        for one in self.inputs:
            try:
                yield from self._items(one)
            except DataError as error:  # concerns the whole input
                report(error, self.on_error)
            except OSError as error:  # such as a name that is too long
                reason = error.strerror or error
                report(
                    DataError(f"{one}: cannot be read ({reason}); check the path"), self.on_error
                )

    def _items(self, one: str) -> Iterator[Item]:
        path, suffix = Path(one), Path(one).suffix.lower()
        if one == STANDARD:
            paths = listed(cast(BufferedIOBase, sys.stdin.buffer), self.null)
            return (Item(path, Path(path)) for path in paths)
        if path.is_dir():
            return self._folder(path)
        if suffix in WITH_ARRAYS:
            return self._arrays(path)
        if suffix not in TABLES:
            return iter([Item(one, path)])
        return self._pictures(path) if self.features is None else self._vectors(path, self.features)

    def _folder(self, path: Path) -> Iterator[Item]:
        empty = True
        self._linked = set()  # links of other inputs do not count
        for file in self._walk(path, ()):
            empty = False
            yield Item(str(file), file)
        if empty:
            raise DataError(f"{path}: no pictures in this folder ({', '.join(sorted(PICTURES))})")

    def _walk(self, folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
        """Yield the pictures below a folder; `above` are its parents, by device and inode."""
        try:
            status = folder.stat()
            here = (status.st_dev, status.st_ino)
            link = folder.is_symlink()
            if here in above or (link and here in self._linked):
                self.note(f"{folder}: a link to a folder that was already read; not followed")
                return
            if link:
                self._linked.add(here)
            names = (one.name for one in folder.iterdir())
            for name in sorted(name for name in names if not name.startswith(".")):
                inner = folder / name
                if inner.suffix.lower() in INTENDED and not inner.is_dir():
                    yield inner
                elif inner.is_dir():
                    yield from self._walk(inner, (*above, here))
        except OSError as error:
            message = f"{folder}: cannot be read ({error.strerror}); check its permissions"
            report(DataError(message), self.on_error)

    def _pictures(self, path: Path) -> Iterator[Item]:
        """Yield the pictures that a table names; rows are read on demand."""
        builder = builder_of(path, Reading(on_error=self.on_error))
        rows, place, header = opened(builder, EXAMPLE)
        names = [name.strip() for name in header]
        with builder.located(place):
            wanted = Columns(image=self.columns.image)
            column = named_columns(names, wanted, ("image",)).get("image")
        if column is None:
            problem = f"no column 'image'; {REMEDY}; the columns are {column_names(names)}"
            raise builder.error(place, problem)
        seen = {""}
        for number, cells in rows([column], [column]):
            image = ""
            with builder.record():
                image = item_of(builder, number, cells[column])
            if image not in seen:
                seen.add(image)
                file = path.parent / image
                yield Item(str(file), file, where=builder.place(number))

    def _vectors(self, path: Path, size: int) -> Iterator[Item]:
        """Yield the rows of features of a CSV file, in the order of the model's features."""
        builder = builder_of(path, Reading(on_error=self.on_error))
        rows, line, header = opened(builder, EXAMPLE)
        names = [name.strip() for name in header]
        lowered = [name.lower() for name in names]
        item = next((lowered.index(name) for name in ("image", "id") if name in lowered), None)
        with builder.located(line):
            if self.columns.image is not None:
                item = position(names, self.columns.image, "--image-column")
            if self.columns.features is not None:
                others = set() if item is None else {item}
                wanted = feature_columns(names, self.columns.features, others)
            elif self.named:
                wanted = [position(names, name, "a feature of the model") for name in self.named]
            else:
                raise DataError(
                    "the model does not name its features; name their columns, in its order, "
                    "with --features"
                )
        if len(wanted) != size:
            raise UserError(f"{path}: {len(wanted)} features, the model takes {size}")
        for count, (place, cells) in enumerate(rows(wanted, ())):
            with builder.record(), builder.located(place):
                x = np.asarray([feature(cells[i], names[i]) for i in wanted], np.float32)
                name = f"{path.stem}/{count}" if item is None else cells[item].strip()
                yield Item(name, x=x, where=builder.place(place))

    def _arrays(self, path: Path) -> Iterator[Item]:
        """Yield the rows of `x` of a `.npz` file, or of a `.npy` file, then memory-mapped."""
        mapped = path.suffix.lower() == ".npy"
        stored = {"x": load_array(path)} if mapped else load_arrays(path)
        if "x" not in stored:
            raise DataError(f"{path}: no array 'x'; the arrays are {', '.join(stored) or 'none'}")
        check = RowCheck(path, self.on_error)
        x = pictures_or_features(path, stored["x"], check)
        names = [f"{path.stem}/{row}" for row in range(len(x))]
        if "items" in stored:
            names = strings(f"{path}: items", stored["items"], len(x), "rows of x")
        if (x.ndim == 2) != (self.features is not None):
            wanted = "pictures" if self.features is None else f"x of {self.features} features"
            raise UserError(f"{path}: x is {x.dtype} {x.shape}; this model takes {wanted}")
        if self.features is not None and x.shape[1] != self.features:
            raise UserError(f"{path}: x has {x.shape[1]} features, the model takes {self.features}")
        for row, name in enumerate(names):
            if row not in check.invalid:
                yield Item(name, x=x[row], where=f"{path}, row {row}: ")


def listed(stream: BufferedIOBase, null: bool = False) -> Iterator[str]:
    """Yield paths as they arrive: one per line, or ended by NUL; skip blank lines."""
    end, rest = b"\0" if null else b"\n", b""
    while chunk := stream.read1(CHUNK):
        if not null and b"\0" in chunk:  # no path contains NUL
            raise DataError("standard input: the paths end in NUL; use --null (-0)")
        *whole, rest = (rest + chunk).split(end)
        for path in whole:
            if text := os.fsdecode(path if null else path.rstrip(b"\r")):
                yield text
        if len(rest) > PATH_LIMIT:
            ended = "NUL" if null else "a line end"
            raise DataError(
                f"standard input: {PATH_LIMIT} bytes without {ended}; "
                "give one path a line, or use --null"
            )
    if text := os.fsdecode(rest if null else rest.rstrip(b"\r\n")):
        yield text
