"""How large the objects of each positive label are, where a data set has boxes: VOC and COCO."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from spml.data.readers.coco import load_instances
from spml.data.table import LabelTable
from spml.errors import DataError, UserError
from spml.files import opening

Areas = npt.NDArray[np.float64]


def areas(source: str, table: LabelTable) -> Areas:
    """Area in pixels of the boxes of each positive, summed per class, in the order of `table.sparse.positives(-1)`.

    Args:
        source: "voc" or "coco".
        table: as `read` gives it; its root leads to the boxes.
    """
    if source not in ("voc", "coco"):
        raise UserError(
            f"{source} has no boxes, so sizes are not known; --observe size is for voc and coco"
        )
    assert table.root is not None
    known = table.sparse.positives(-1)
    keys = known.entry_rows() * known.num_classes + known.indices
    boxes = _voc(table, table.root) if source == "voc" else _coco(table, table.root)
    found = np.fromiter(
        boxes, np.dtype([("row", np.int64), ("column", np.int64), ("area", np.float64)])
    )
    wanted = found["row"] * known.num_classes + found["column"]
    at = np.searchsorted(keys, wanted)
    at[at == len(keys)] = 0
    labelled = keys[at] == wanted if len(keys) else np.zeros(len(wanted), bool)
    out = np.zeros(len(keys))
    np.add.at(out, at[labelled], found["area"][labelled])
    return out


def _voc(table: LabelTable, pictures: Path) -> Iterator[tuple[int, int, float]]:
    """The boxes of the objects that are not difficult, which are those that make a label positive."""
    column = {name: i for i, name in enumerate(table.classes)}
    for row, item in enumerate(table.items):
        path = pictures.parent / "Annotations" / f"{Path(item).stem}.xml"
        try:
            with opening(path):
                tree = ElementTree.parse(path)
            for entry in tree.iterfind("object"):
                if (name := entry.findtext("name", "")) in column and entry.findtext(
                    "difficult", "0"
                ) != "1":
                    left, top, right, bottom = (
                        float(entry.findtext(f"bndbox/{side}", ""))
                        for side in ("xmin", "ymin", "xmax", "ymax")
                    )
                    yield row, column[name], (right - left + 1) * (bottom - top + 1)
        except (ElementTree.ParseError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{path}: not a VOC annotation ({error}); unpack the archive again"
            ) from None


def _coco(table: LabelTable, root: Path) -> Iterator[tuple[int, int, float]]:
    row = {item: i for i, item in enumerate(table.items)}
    for folder in sorted({item.partition("/")[0] for item in table.items}):
        path = root / "annotations" / f"instances_{folder}.json"
        content = load_instances(path)
        try:
            column = {
                category["id"]: table.classes.index(category["name"])
                for category in content["categories"]
            }
            name = {image["id"]: f"{folder}/{image['file_name']}" for image in content["images"]}
            for entry in content["annotations"]:
                if (item := name[entry["image_id"]]) in row:
                    _, _, width, height = entry["bbox"]
                    yield row[item], column[entry["category_id"]], float(width) * float(height)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: not the layout of an instances file ({error}); unpack it again"
            ) from None
