"""CSV files of labels, in long form (names in a column) and wide form (a column per class)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from spml.data.builder import Builder, Kind
from spml.data.forms import Form, Record, fill_long, fill_wide
from spml.data.names import ClassList
from spml.data.table import LabelTable
from spml.data.text import lines
from spml.errors import DataError

SEPARATORS = ",;\t"


def read_csv(
    path: Path, root: Path | None = None, *, labels: Kind = "observed", classes: ClassList | None = None
) -> dict[str, LabelTable]:
    """The tables of a CSV file: `image,label[,negative][,split]`, or `image[,split]` and one column per class.

    Args:
        path: UTF-8 file with a header; cells are separated by commas, semicolons or tabs.
        root: folder of the images; that of the file when None.
        labels: whether a label that is not given is unknown ("observed") or negative ("complete").
        classes: the classes and their order; when None, sorted (long form) or as the columns stand (wide form).
    """
    records = _records(path)
    header_line, header = next(records, (0, []))
    if not header:
        raise DataError(f"{path}: empty file; the first line must name the columns, such as image,label")
    builder = Builder(path, classes)
    form = Form.of(builder, header_line, header)
    full = _same_length(builder, len(header), records)
    if form.label is not None:
        fill_long(builder, form, full)
    else:
        fill_wide(builder, form, full)
    return builder.tables(labels, root or path.parent, sort_classes=form.label is not None)


def _records(path: Path) -> Iterator[Record]:
    """First line and cells of each record that is not blank."""
    reader = csv.reader(lines(path), delimiter=_separator(path), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{path}, line {line}: {error}; check the quotes and line ends of this row") from None
        if any(cell.strip() for cell in cells):
            yield line, cells


def _separator(path: Path) -> str:
    """The separator that finds a column `image` in the header, or else the most columns."""
    header = next((line for line in lines(path) if line.strip()), "")

    def fitness(separator: str) -> tuple[bool, int]:
        cells = next(csv.reader([header], delimiter=separator), [])
        return "image" in [cell.strip().lower() for cell in cells], len(cells)

    try:
        return max(SEPARATORS, key=fitness)
    except csv.Error as error:
        raise DataError(f"{path}, line 1: {error}; check the quotes and line ends of the header") from None


def _same_length(builder: Builder, width: int, records: Iterator[Record]) -> Iterator[Record]:
    for line, cells in records:
        if len(cells) != width:
            remedy = "quote a cell that contains the separator" if len(cells) > width else "fill the row up"
            raise builder.error(line, f"{len(cells)} cells, the header has {width}; {remedy}")
        yield line, cells
