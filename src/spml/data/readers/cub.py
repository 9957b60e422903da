"""CUB-200-2011: the 312 attributes of each bird."""

from __future__ import annotations

from pathlib import Path

from spml.data.names import class_list
from spml.data.readers.builder import Builder, Kind, Reading
from spml.data.table import LabelTable
from spml.errors import DataError
from spml.files import folder_with, split_lines

SPLIT = {"1": "train", "0": "test"}
AGAIN = "unpack CUB_200_2011.tgz again"


def read_cub(root: Path, *, labels: Kind = "complete") -> dict[str, LabelTable]:
    """Read the official training images ("train") and test images ("test").

    Rows are in the order of `images.txt`.
    """
    folder = folder_with(
        root, (".", "CUB_200_2011", "CUB_200_2011/CUB_200_2011"), "train_test_split.txt", AGAIN
    )
    marks = folder / "attributes" / "image_attribute_labels.txt"
    # The archive has the names beside its folder, copies have them inside it.
    beside = folder.parent / "attributes.txt"
    inside = (marks.with_name("attributes.txt"), folder / "attributes.txt")
    named = next((path for path in (beside, *inside) if path.exists()), beside)
    attributes = class_list(list(_pairs(named).values()))
    assert attributes is not None
    images = _pairs(folder / "images.txt")
    split = _pairs(folder / "train_test_split.txt")
    builder = Builder(marks, Reading(labels, attributes), folder / "images")
    rows: dict[str, int] = {}
    for number, name in images.items():
        if split.get(number) not in SPLIT:
            raise DataError(
                f"{folder / 'train_test_split.txt'}: image {number} is not marked 1 or 0; {AGAIN}"
            )
        rows[number] = builder.row(name, 0, SPLIT[split[number]])
    _fill(builder, rows, len(attributes.display))
    return builder.tables()


def _pairs(path: Path) -> dict[str, str]:
    """Return the number at the start of each line and the word after it."""
    pairs: dict[str, str] = {}
    for line, cells in split_lines(path):
        if len(cells) != 2 or cells[0] in pairs:
            problem = f"{' '.join(cells)!r} is not a new number and its entry"
            raise DataError(f"{path}, line {line}: {problem}; {AGAIN}")
        pairs[cells[0]] = cells[1]
    return pairs


def _fill(builder: Builder, rows: dict[str, int], num_attributes: int) -> None:
    """Add image, attribute and presence of each line; some lines have more than these cells."""
    columns = {str(i + 1): i for i in range(num_attributes)}
    seen = bytearray(len(rows) * num_attributes)
    for line, cells in split_lines(builder.source):
        try:
            image, attribute, present = cells[:3]
            row, column = rows[image], columns[attribute]
            value = {"1": 1, "0": 0}[present]
        except (ValueError, KeyError):
            text = " ".join(cells[:6])
            raise builder.error(
                line, f"{text!r} is not an image, an attribute and 1 or 0; {AGAIN}"
            ) from None
        seen[row * num_attributes + column] = 1
        if value:
            builder.add(row, column, 1, line)
    if (missing := seen.find(0)) >= 0:
        row, column = divmod(missing, num_attributes)
        pair = f"image {list(rows)[row]}, attribute {column + 1}"
        raise DataError(f"{builder.source}: no line for {pair}; {AGAIN}")
