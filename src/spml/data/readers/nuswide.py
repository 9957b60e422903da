"""NUS-WIDE: its official lists, or the formatted `.npy` files that later work shares.

Numbers on different versions of NUS-WIDE cannot be compared; `version` names the one in a folder.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from spml.data.names import ClassList
from spml.data.readers.arrays import RowCheck, label_rows, load_array, strings
from spml.data.readers.builder import FILL, Builder, Kind, Reading
from spml.data.table import LabelTable
from spml.errors import DataError
from spml.files import folder_with, lines, opening

CLASSES = (
    *("airport", "animal", "beach", "bear", "birds", "boats", "book", "bridge", "buildings"),
    *("cars", "castle", "cat", "cityscape", "clouds", "computer", "coral", "cow", "dancing", "dog"),
    *("earthquake", "elk", "fire", "fish", "flags", "flowers", "food", "fox", "frost", "garden"),
    *("glacier", "grass", "harbor", "horses", "house", "lake", "leaf", "map", "military", "moon"),
    *("mountain", "nighttime", "ocean", "person", "plane", "plants", "police", "protest"),
    *("railroad", "rainbow", "reflection", "road", "rocks", "running", "sand", "sign", "sky"),
    *("snow", "soccer", "sports", "statue", "street", "sun", "sunset", "surf", "swimmers"),
    *("tattoo", "temple", "tiger", "tower", "town", "toy", "train", "tree", "valley", "vehicle"),
    *("water", "waterfall", "wedding", "whales", "window", "zebra"),
)
FORMATTED = {"train": "train", "test": "val"}
OFFICIAL = {"train": "Train", "test": "Test"}
NEGATIVE = ("0", "-1130179")  # the published Labels_lake_Train.txt has the second one once
REMEDY = "put the official lists (ImageList, Groundtruth) or the four formatted_*.npy files there"


def read_nuswide(root: Path, *, labels: Kind = "complete") -> dict[str, LabelTable]:
    """Read the 81 concepts of the formatted files if there are any, else of the official lists."""
    if _is_formatted(root):
        return {split: _formatted(root, name, labels) for split, name in FORMATTED.items()}
    tables: dict[str, LabelTable] = {}
    for split, name in OFFICIAL.items():
        tables |= _official(root, split, name, labels)
    return tables


def version(root: Path) -> str:
    """Name the version in a folder.

    Formatted files of different origins have the same names, so their content is hashed.
    """
    if not _is_formatted(root):
        return "official lists"
    with opening(root):
        digest = hashlib.sha256((root / "formatted_train_images.npy").read_bytes())
    return f"formatted files, sha256 of the train list {digest.hexdigest()[:12]}"


def _is_formatted(root: Path) -> bool:
    return (root / "formatted_train_images.npy").exists()


def _pictures(root: Path) -> Path:
    return root / "Flickr" if (root / "Flickr").is_dir() else root


def _formatted(root: Path, name: str, labels: Kind) -> LabelTable:
    images, marks = root / f"formatted_{name}_images.npy", root / f"formatted_{name}_labels.npy"
    values = load_array(marks)
    if values.ndim != 2 or values.shape[1] != len(CLASSES):
        raise DataError(
            f"{marks}: {values.shape}; it must have {len(CLASSES)} columns: download it again"
        )
    items = strings(f"{images}", load_array(images), len(values), f"rows of {marks.name}")
    sparse = label_rows(RowCheck(marks), values, len(items)).positives(FILL[labels])
    return LabelTable(
        [item.replace("\\", "/") for item in items], CLASSES, sparse, root=_pictures(root)
    )


def _official(root: Path, split: str, name: str, labels: Kind) -> dict[str, LabelTable]:
    list_name = f"{name}Imagelist.txt"
    images = (
        folder_with(root, (".", "ImageList", "NUS-WIDE/ImageList"), list_name, REMEDY) / list_name
    )
    starts = (".", "Groundtruth", "NUS-WIDE/Groundtruth")
    marks = folder_with(root, starts, "TrainTestLabels", REMEDY) / "TrainTestLabels"
    classes = ClassList({name: name for name in CLASSES}, "NUS-WIDE")
    builder = Builder(images, Reading(labels, classes), _pictures(root))
    rows = []
    for line, text in enumerate(lines(images), 1):
        if item := text.strip().replace("\\", "/"):
            rows.append(builder.row(item, line, split))
    for column, concept in enumerate(CLASSES):
        path = marks / f"Labels_{concept}_{name}.txt"
        values = np.array([text.strip() for text in lines(path) if text.strip()])
        if len(values) != len(rows):
            raise DataError(
                f"{path}: {len(values)} lines, {list_name} has {len(rows)}; unpack it again"
            )
        positive = values == "1"
        if len(wrong := np.flatnonzero(~positive & ~np.isin(values, NEGATIVE))):
            problem = f"{values[wrong[0]]!s:.20} is not 0 or 1"
            raise DataError(f"{path}, line {wrong[0] + 1}: {problem}; unpack it again")
        for place in np.flatnonzero(positive).tolist():
            builder.add(rows[place], column, 1, place + 1)
    return builder.tables()
