"""CSV files of labels, in long form (names in a column) and wide form (a column per class)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spml.data.readers.builder import Builder, Reading
from spml.data.readers.table_forms import Form, Record, fill_long, fill_wide, of_names
from spml.data.table import LabelTable
from spml.errors import DataError
from spml.files import lines

SEPARATORS = ",;\t"
TOLD = re.compile(r"sep=.\s*", re.IGNORECASE)  # a first line that is meant for Excel


def read_csv(path: Path, root: Path | None, how: Reading) -> dict[str, LabelTable]:
    """The tables of a CSV file: `image,label[,negative][,split]`, or `image[,split]` and one column per class.

    Args:
        path: UTF-8 file with a header; cells are separated by commas, semicolons or tabs.
        root: folder of the images; that of the file when None.
        how: classes that are not given are sorted (long form) or as the columns stand (wide form).
    """
    builder = Builder(path, how.classes, on_error=how.on_error, folder=root or path.parent)
    rows = records(builder)
    header_line, header = next(rows, (0, []))
    if not header:
        raise DataError(
            f"{path}: empty file; the first line must name the columns, such as image,label"
        )
    form = Form.of(builder, header_line, header)
    if form.label is None:
        fill_wide(builder, form, rows)
    else:
        fill_long(builder, form, of_names(builder, form, header, rows))
    return builder.tables(how.labels, root or path.parent, sort_classes=form.label is not None)


def records(builder: Builder) -> Iterator[Record]:
    """First line and cells of each record that is not blank; all have as many cells as the first, the header."""
    bad: list[tuple[int, str]] = []
    reader = cells_of(builder.source, bad)
    width = 0
    while True:
        bad.clear()
        line, cells = reader.line_num + 1, None
        with builder.record():
            try:
                found = next(reader, None)
            except csv.Error as error:
                last = (
                    f", as which all to line {reader.line_num} are read"
                    if reader.line_num > line
                    else ""
                )
                raise builder.error(
                    line, f"{error}; check the quotes and line ends of this row{last}"
                ) from None
            if bad:
                raise builder.error(*bad[0])
            if found is None:
                return
            if any(cell.strip() for cell in found):
                _check_width(builder, line, len(found), width or len(found))
                cells = found
        if cells is not None:
            width = len(cells)
            yield line, cells


def _check_width(builder: Builder, line: int, found: int, width: int) -> None:
    if found != width:
        remedy = "quote a cell that contains the separator" if found > width else "fill the row up"
        raise builder.error(line, f"{found} cells, the header has {width}; {remedy}")


def cells_of(path: Path, bad: list[tuple[int, str]] | None = None) -> Any:
    """A reader of the cells of each line, by the separator that the header shows; `bad` as in `spml.files`."""
    return csv.reader(_rows(path, bad), delimiter=_separator(path), strict=True)


def _rows(path: Path, bad: list[tuple[int, str]] | None = None) -> Iterator[str]:
    """The lines of a file; one that tells Excel its separator counts as blank."""
    for number, line in enumerate(lines(path, bad)):
        yield "\n" if number == 0 and TOLD.fullmatch(line) else line


def _separator(path: Path) -> str:
    """The separator that finds a column `image` in the header, or else the most columns."""
    header = next((line for line in _rows(path) if line.strip()), "")

    def fitness(sign: str) -> tuple[bool, int]:
        cells = next(csv.reader([header], delimiter=sign), [])
        return "image" in [cell.strip().lower() for cell in cells], len(cells)

    try:
        return max(SEPARATORS, key=fitness)
    except csv.Error as error:
        raise DataError(
            f"{path}, line 1: {error}; check the quotes and line ends of the header"
        ) from None
