"""Class folders: `class/picture`, or `train/class/picture`, `val/...` and `test/...`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from spml.data.readers.builder import Builder, Reading
from spml.data.readers.hub import SPLIT_NAMES
from spml.data.table import SPLITS, LabelTable
from spml.errors import DataError
from spml.files import opening

# The formats that `spml.data.images.decode` reads.
PICTURES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})


def read_folder(path: Path, reading: Reading) -> dict[str, LabelTable]:
    """Read pictures that are labelled by their folder, sorted by path.

    The folder holds the classes, or `train` and `val` or `test` with the classes inside. Folders
    inside a class folder belong to the class. A record is a class folder.
    """
    builder = Builder(path, reading, path, "picture")
    top = _folders(path)
    if top and set(top) <= set(SPLITS) and "train" in top:
        parts = [(split, path / split) for split in SPLITS if split in top]
    else:
        _refuse_splits(path, top)
        parts = [("train", path)]
    skipped: list[Path] = []
    for split, start in parts:
        names = _folders(start)
        if not names:
            raise DataError(
                f"{start}: no class folders; put each picture into a folder named after its class"
            )
        if loose := [file for file in start.iterdir() if _is_picture(file)]:
            problem = f"{len(loose)} pictures lie outside the class folders"
            text = f"{start}: {problem}, first {min(loose).name}; move them"
            builder.report(DataError(text))
        for name in names:
            with builder.record():
                skipped += _fill(builder, split, start / name)
    if skipped:
        warnings.warn(
            f"{path}: {len(skipped)} files are no pictures and were left out, first {skipped[0]}",
            stacklevel=2,
        )
    return builder.tables()


def _refuse_splits(path: Path, names: list[str]) -> None:
    """Raise DataError if split folders that hold the classes would be read as classes."""
    likely = [name for name in names if name.lower() in SPLIT_NAMES and _folders(path / name)]
    likely = [name for name in likely if not any(map(_is_picture, (path / name).iterdir()))]
    if len(likely) > 1:  # a single one may be a class: trains
        problem = f"{', '.join(map(repr, likely))} hold folders, so they are splits and not classes"
        raise DataError(
            f"{path}: {problem}; call them 'train', 'val' and 'test', and move other folders away"
        )


def _fill(builder: Builder, split: str, folder: Path) -> Iterator[Path]:
    """Add the pictures of a class folder; yield its other files."""
    column = builder.column(folder.name, len(builder) + 1)
    for file in _files(folder):
        if _is_picture(file):
            row = builder.row(file.relative_to(builder.source).as_posix(), len(builder) + 1, split)
            builder.add(row, column, 1, row + 1)
        else:
            yield file


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in PICTURES and not file.name.startswith(".") and file.is_file()


def _folders(path: Path) -> list[str]:
    with opening(path):
        return sorted(
            entry.name
            for entry in path.iterdir()
            if entry.is_dir() and not entry.name.startswith(".")
        )


def _files(folder: Path) -> Iterator[Path]:
    """Yield every file below, sorted, without the hidden files that operating systems create."""
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and name != "Thumbs.db":
                yield Path(place) / name
