"""Hugging Face dataset folders, read without its library: saved to disk, as on the hub, or pictures with metadata."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spml.data.readers.arrow import inner_type, is_text, sound
from spml.data.readers.builder import Builder, Reading
from spml.data.readers.hub_files import (
    IMAGES,
    LABELS,
    SPLIT_NAMES,
    Part,
    batches,
    is_hub_folder,
    label_names,
    parts_of,
)
from spml.data.readers.table_forms import item_of, split_of
from spml.data.table import LabelTable
from spml.errors import DataError

__all__ = ["Store", "fill", "is_hub_folder", "read_hub_folder"]

SPLIT = "split"  # column
Store = Callable[[str, int, bytes, str], str]  # split, row, bytes and path of a picture -> its item


def read_hub_folder(path: Path, root: Path | None, how: Reading) -> dict[str, LabelTable]:
    """The tables of a dataset's folder: pictures by their paths, labels as names, lists of names, or class labels.

    Args:
        path: the folder.
        root: folder of the pictures; the dataset's own when None.
        how: classes that are not given are as the dataset lists them, or else sorted; rows are counted over all files.
    """
    builder = Builder(path, how.classes, "row", how.on_error, root or path)
    listed = fill(builder)
    return builder.tables(how.labels, root or path, sort_classes=not listed)


def fill(builder: Builder, store: Store | None = None) -> bool:
    """Collect the rows of a dataset's folder; True where it lists its classes.

    Args:
        builder: of the folder.
        store: keeps a picture whose bytes are in the files; without it, such a picture is a DataError.
    """
    number, listed = 1, False
    for part in parts_of(builder.source):
        with sound(part.file, "cannot be read"):
            for batch in batches(part.file):
                image, label = (
                    _column(part, batch, IMAGES, "pictures"),
                    _column(part, batch, LABELS, "labels"),
                )
                names = label_names(part, batch.schema, label)
                if names is not None and not listed and builder.classes is None:
                    listed = True
                    for name in filter(None, map(str.strip, names)):
                        builder.column(name, 0)
                pictures = _pictures(builder, part, batch.column(image), store)
                cells = _cells(part, label, batch.column(label), names)
                for picture, cell, said in zip(pictures, cells, _splits(part, batch), strict=True):
                    with builder.record():
                        split = split_of(builder, number, said)
                        item = item_of(builder, number, _item(part, split, number, picture, store))
                        row = builder.row(item, number, split)
                        builder.names(row, _names(builder, number, cell, names), 1, number)
                    number += 1
    return listed


def _column(part: Part, batch: Any, wanted: tuple[str, ...], what: str) -> str:
    found = [name for name in wanted if batch.schema.names.count(name) == 1]
    if not found:
        there = ", ".join(map(repr, batch.schema.names))
        raise DataError(
            f"{part.file}: the columns are {there}; name the one of the {what} {wanted[0]!r}"
        )
    return found[0]


def _pictures(builder: Builder, part: Part, column: Any, store: Store | None) -> list[Any]:
    """A path, or a mapping of path and bytes, for each row."""
    from pyarrow import types

    column.validate(full=True)  # a damaged Arrow file is not looked at otherwise
    kind = column.type
    mapping = types.is_struct(kind) and {"path", "bytes"} <= {field.name for field in kind}
    if not mapping and not is_text(kind):
        raise DataError(
            f"{part.file}: the column of the pictures holds {kind}; it must hold paths or pictures"
        )
    pictures: list[Any] = column.to_pylist()
    if mapping and store is None and any(one and one["bytes"] is not None for one in pictures):
        raise DataError(
            f"{builder.source}: the pictures are inside its files; write them out with "
            f"`python -m spml.data.readers.hub_export {builder.source} OUT`, then give OUT/labels.csv"
        )
    return pictures


def _cells(part: Part, name: str, column: Any, names: list[str] | None) -> list[Any]:
    """The labels of each row, as a list or a single one."""
    from pyarrow import types

    column.validate(full=True)
    kind = column.type
    inner = inner_type(kind)
    if types.is_integer(inner) and names is None and part.file.suffix != ".csv":
        raise DataError(
            f"{part.file}: column {name!r} holds numbers without names; store names, or a ClassLabel"
        )
    if not (is_text(inner) or types.is_integer(inner)):
        raise DataError(
            f"{part.file}: column {name!r} holds {kind}; it must hold names, or lists of names"
        )
    return column.to_pylist()  # type: ignore[no-any-return]


def _splits(part: Part, batch: Any) -> list[str]:
    """Of each row: what a column says where the file's name does not."""
    if part.named or batch.schema.names.count(SPLIT) != 1 or not is_text(batch.column(SPLIT).type):
        return [part.split] * len(batch)
    said = [str(cell or part.split).strip() for cell in batch.column(SPLIT).to_pylist()]
    return [SPLIT_NAMES.get(split.lower(), split) for split in said]


def _item(part: Part, split: str, number: int, picture: Any, store: Store | None) -> str:
    """The path of a picture, seen from the dataset's folder."""
    if isinstance(picture, dict):
        path, data = picture["path"] or "", picture["bytes"]
        return path if data is None or store is None else store(split, number, data, path)
    return f"{part.prefix}{picture}" if picture else ""


def _names(
    builder: Builder, number: int, cell: Any, names: list[str] | None
) -> str | list[str | None]:
    """The class names of a cell; of numbers, -1 stands for none."""
    if isinstance(cell, str):
        return cell
    found: list[str | None] = []
    for one in cell if isinstance(cell, list) else [cell]:
        if isinstance(one, int) and names is not None:
            if not -1 <= one < len(names):
                raise builder.error(
                    number, f"label {one}, but there are {len(names)} names; save the dataset again"
                )
            found.append(names[one] if one >= 0 else None)
        else:
            found.append(None if one is None else str(one))
    return found
