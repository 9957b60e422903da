"""Sizes of the objects of each positive label, for data sets that have boxes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from spml.data.benchmarks import BENCHMARKS, function
from spml.data.readers.coco import instances
from spml.data.table import LabelTable
from spml.errors import DataError, UserError
from spml.files import opening

Areas = npt.NDArray[np.float64]
Boxes = Iterator[tuple[int, int, float]]  # row, column and area of each object
SIDES = ("xmin", "ymin", "xmax", "ymax")


def areas(source: str, table: LabelTable) -> Areas:
    """Return the summed box area of each positive in pixels, in the order of `positives(-1)`."""
    with_boxes = [name for name, entry in BENCHMARKS.items() if entry.boxes]
    if source not in with_boxes:
        raise UserError(
            f"{source} has no boxes, so sizes are not known; "
            f"--observe size is for {' and '.join(with_boxes)}"
        )
    assert table.root is not None
    known = table.sparse.positives(-1)
    keys = known.entry_rows() * known.num_classes + known.indices
    boxes = np.fromiter(
        function(BENCHMARKS[source].boxes)(table, table.root),
        np.dtype([("row", np.int64), ("column", np.int64), ("area", np.float64)]),
    )
    wanted = boxes["row"] * known.num_classes + boxes["column"]
    at = np.searchsorted(keys, wanted)
    at[at == len(keys)] = 0
    labelled = keys[at] == wanted if len(keys) else np.zeros(len(wanted), bool)
    out = np.zeros(len(keys))
    np.add.at(out, at[labelled], boxes["area"][labelled])
    return out


def voc_boxes(table: LabelTable, pictures: Path) -> Boxes:
    """Yield the boxes of the objects that make a label positive: those not marked difficult."""
    column = {name: i for i, name in enumerate(table.classes)}
    for row, item in enumerate(table.items):
        path = pictures.parent / "Annotations" / f"{Path(item).stem}.xml"
        try:
            with opening(path):
                tree = ElementTree.parse(path)
            for entry in tree.iterfind("object"):
                name, difficult = entry.findtext("name", ""), entry.findtext("difficult", "0")
                if name in column and difficult != "1":
                    left, top, right, bottom = (
                        float(entry.findtext(f"bndbox/{side}", "")) for side in SIDES
                    )
                    yield row, column[name], (right - left + 1) * (bottom - top + 1)
        except (ElementTree.ParseError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{path}: not a VOC annotation ({error}); unpack the archive again"
            ) from None


def coco_boxes(table: LabelTable, root: Path) -> Boxes:
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
