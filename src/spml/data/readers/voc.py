"""PASCAL VOC 2012, from the lists of its ImageSets/Main folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from spml.data.names import ClassList
from spml.data.readers.builder import Builder, Kind, Reading
from spml.data.table import LabelTable
from spml.errors import DataError
from spml.files import folder_with, sound, split_lines

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
)
SIDES = ("xmin", "ymin", "xmax", "ymax")
BROKEN = (ElementTree.ParseError, ValueError)  # errors of a damaged annotation
LISTS = {"train": "train", "test": "val"}  # the official val list is the benchmark's test set


def read_voc(root: Path, *, labels: Kind = "complete") -> dict[str, LabelTable]:
    """Read the official train list ("train") and val list ("test").

    `root` is VOCdevkit, its parent or VOC2012.
    """
    starts = (".", "VOC2012", "VOCdevkit/VOC2012")
    home = folder_with(
        root, starts, "ImageSets/Main", "give --root the folder that holds VOCdevkit"
    )
    folder = home / "ImageSets" / "Main"
    classes = ClassList({name: name for name in CLASSES}, "VOC")
    tables: dict[str, LabelTable] = {}
    for split, name in LISTS.items():
        builder = Builder(folder / f"{name}.txt", Reading(labels, classes), home / "JPEGImages")
        for line, (image, *_) in sorted(split_lines(builder.source), key=lambda pair: pair[1]):
            builder.row(f"{image}.jpg", line, split)
        for column, class_name in enumerate(CLASSES):
            _fill(builder, folder / f"{class_name}_{name}.txt", column)
        tables |= builder.tables()
    return tables


def _fill(builder: Builder, path: Path, column: int) -> None:
    """Add the positives of one class; 0 marks a difficult object, which is not a positive."""
    listed = builder.source.name
    seen = 0
    for line, cells in split_lines(path):
        place = f"{path}, line {line}"
        if len(cells) != 2 or cells[1] not in ("1", "0", "-1"):
            problem = f"{' '.join(cells)!r} is not an image and 1, 0 or -1"
            raise DataError(f"{place}: {problem}; unpack it again")
        if (row := builder.known(f"{cells[0]}.jpg")) is None:
            raise DataError(f"{place}: {cells[0]!r} is not in {listed}; unpack it again")
        seen += 1
        if cells[1] == "1":
            builder.add(row, column, 1, line)
    if seen != len(builder):
        raise DataError(
            f"{path}: {seen} images, {listed} has {len(builder)}; unpack the archive again"
        )


def voc_boxes(table: LabelTable, pictures: Path) -> Iterator[tuple[int, int, float]]:
    """Yield the boxes of the objects that make a label positive: those not marked difficult."""
    column = {name: i for i, name in enumerate(table.classes)}
    for row, item in enumerate(table.items):
        path = pictures.parent / "Annotations" / f"{Path(item).stem}.xml"
        with sound(path, BROKEN, "not a VOC annotation", "; unpack the archive again"):
            for entry in ElementTree.parse(path).iterfind("object"):
                name, difficult = entry.findtext("name", ""), entry.findtext("difficult", "0")
                if name in column and difficult != "1":
                    left, top, right, bottom = (
                        float(entry.findtext(f"bndbox/{side}", "")) for side in SIDES
                    )
                    yield row, column[name], (right - left + 1) * (bottom - top + 1)
