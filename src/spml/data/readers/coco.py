"""MS-COCO 2014, from its instances files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spml.data.names import ClassList
from spml.data.readers.builder import Builder, Kind, Reading
from spml.data.table import LabelTable
from spml.errors import DataError
from spml.files import folder_with, opening

# The official val list is the benchmark's test set.
LISTS = {"train": "train2014", "test": "val2014"}


def read_coco(root: Path, *, labels: Kind = "complete") -> dict[str, LabelTable]:
    """Read the annotated images of train2014 ("train") and val2014 ("test").

    Images without an annotation are left out, and image ids are sorted as strings: both belong to
    the protocol. `root` holds the folder `annotations`.
    """
    wanted = f"annotations/instances_{LISTS['train']}.json"
    folder = folder_with(
        root, (".", "coco", "coco2014"), wanted, "unpack annotations_trainval2014.zip there"
    )
    tables: dict[str, LabelTable] = {}
    for split, name in LISTS.items():
        path = folder / "annotations" / f"instances_{name}.json"
        tables |= _table(path, folder, name, split, labels)
    if tables["train"].classes != tables["test"].classes:
        raise DataError(
            f"{folder}: the categories of the two instances files differ; unpack the archive again"
        )
    return tables


def _table(path: Path, folder: Path, name: str, split: str, labels: Kind) -> dict[str, LabelTable]:
    with instances(path, name) as (names, files, annotations):
        pairs = [(each["image_id"], each["category_id"]) for each in annotations]
        if len(set(names.values())) < len(names):
            raise DataError(f"{path}: two categories of one name; unpack the archive again")
        column = {number: i for i, number in enumerate(names)}
        classes = ClassList({shown: shown for shown in names.values()}, path.name)
        builder = Builder(path, Reading(labels, classes), folder, "annotation")
        first: dict[Any, int] = {}
        for place, (image, _) in enumerate(pairs):
            first.setdefault(image, place)
        for image in sorted(first, key=str):
            builder.row(files[image], first[image], split)
        for place, (image, category) in enumerate(pairs):
            builder.add(builder.row(files[image], place, split), column[category], 1, place)
    return builder.tables()


@contextmanager
def instances(path: Path, folder: str) -> Iterator[tuple[dict[Any, str], dict[Any, str], Any]]:
    """Give category names and picture paths by id, and the annotations of an instances file.

    An error of the layout in the block is a DataError that names the file.
    """
    try:
        with opening(path), path.open("rb") as file:
            content = json.load(file, object_hook=_without_outline)
        names = {category["id"]: str(category["name"]) for category in content["categories"]}
        files = {image["id"]: f"{folder}/{image['file_name']}" for image in content["images"]}
        yield names, files, content["annotations"]
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path}{_reason(error)}; unpack the archive again") from None


def _reason(error: Exception) -> str:
    """Explain why the content of an instances file cannot be used."""
    if isinstance(error, json.JSONDecodeError):
        return f", line {error.lineno}: {error.msg}"
    if isinstance(error, UnicodeDecodeError | RecursionError):
        return ": not a JSON file"
    if isinstance(error, KeyError):
        return f": no {error}"
    return f": not the layout of an instances file ({error})"


def _without_outline(entry: dict[str, Any]) -> dict[str, Any]:
    """Drop the outline while the file is read: outlines are most of it and would fill memory."""
    entry.pop("segmentation", None)
    return entry


def coco_boxes(table: LabelTable, root: Path) -> Iterator[tuple[int, int, float]]:
    """Yield the boxes of the instances files."""
    row = {item: i for i, item in enumerate(table.items)}
    for folder in sorted({item.partition("/")[0] for item in table.items}):
        path = root / "annotations" / f"instances_{folder}.json"
        with instances(path, folder) as (names, files, annotations):
            column = {number: table.classes.index(name) for number, name in names.items()}
            for entry in annotations:
                if (item := files[entry["image_id"]]) in row:
                    _, _, width, height = entry["bbox"]
                    yield row[item], column[entry["category_id"]], float(width) * float(height)
