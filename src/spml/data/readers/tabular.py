"""CSV and Parquet files: long form (names in a column) and wide form (a column per class)."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from spml.data.names import suggestion
from spml.data.readers.builder import Builder, Reading
from spml.data.readers.columns import (
    Columns,
    feature,
    feature_columns,
    is_number,
    listed,
    position,
    recipe,
)
from spml.data.readers.parquet import SUFFIXES, parquet_header, parquet_rows
from spml.data.table import SPLITS, LabelTable
from spml.errors import FEATURES, DataError
from spml.files import lines

COLUMNS = ("image", "label", "negative", "split")
VALUES = {
    **{"1": 1, "1.0": 1, "True": 1},  # pandas writes 1.0 and True
    **{"-1": -1, "-1.0": -1},
    **{"0": 0, "0.0": 0, "False": 0, "": 0},
}
HEAD = 100  # rows that show what a column holds
SEPARATORS = ",;\t"
SEPARATOR_LINE = re.compile(r"sep=.\s*", re.IGNORECASE)  # first line that is meant for Excel

Record = tuple[int, list[Any]]  # place and cells; those of a Parquet file may be no text
# From the columns to read and those of them that must hold text; cells in others may be empty.
Rows = Callable[[Collection[int], Collection[int]], Iterator[Record]]


def read_table(path: Path, root: Path | None, reading: Reading) -> dict[str, LabelTable]:
    """Read a CSV or Parquet file.

    The columns are `image,label[,negative][,split]`, or `image[,split]` and a column per class.
    Cells of a CSV file are separated by commas, semicolons or tabs, and names in a cell by `|`;
    those of a Parquet file may also be lists of names, numbers, booleans or null. Without a class
    list, classes are sorted (long form) or in the order of the columns (wide form).
    """
    builder = builder_of(path, reading, root)
    rows, place, header = opened(builder, "such as image,label")
    with builder.located(place):
        form = Form.of(header, reading.columns, place)
    if form.features and path.suffix.lower() in SUFFIXES:
        raise DataError(f"{path}: --features reads CSV files; write the table as one")
    builder.feature_names = [name for _, name in form.features]
    records = rows(form.used, form.texts)
    long = "label" in form.at
    if long:
        _fill_long(builder, form, _checked_long(builder, form, header, records))
    else:
        _fill_wide(builder, form, records)
    return builder.tables(sort_classes=long)


def builder_of(path: Path, reading: Reading, root: Path | None = None) -> Builder:
    """Return the builder of a table, which counts the lines of a CSV file, the rows of others."""
    unit = "row" if path.suffix.lower() in SUFFIXES else "line"
    return Builder(path, reading, root or path.parent, unit)


def opened(builder: Builder, example: str) -> tuple[Rows, int, list[str]]:
    """Return the rows of a file, and the line and cells of its header."""
    path = builder.source
    if path.suffix.lower() in SUFFIXES:
        return partial(parquet_rows, path), 0, parquet_header(path)
    rows = records(builder)
    line, header = next(rows, (0, []))
    if not header:
        raise builder.error(0, f"empty file; the first line must name the columns, {example}")
    return lambda columns, texts: rows, line, header


def records(builder: Builder) -> Iterator[tuple[int, list[str]]]:
    """Yield line and cells of each record of a CSV file that is not blank, the header first.

    All records must have as many cells as the header.
    """
    bad: list[tuple[int, str]] = []
    path, width = builder.source, 0
    reader = csv.reader(_lines(path, bad), delimiter=_separator(path), strict=True)
    while True:
        bad.clear()
        line, cells = reader.line_num + 1, None
        with builder.record():
            try:
                row = next(reader, None)
            except csv.Error as error:
                last = reader.line_num
                extent = f", which extends to line {last}" if last > line else ""
                remedy = f"check the quotes and line ends of this row{extent}"
                raise builder.error(line, f"{error}; {remedy}") from None
            if bad:
                raise builder.error(*bad[0])
            if row is None:
                return
            if any(cell.strip() for cell in row):
                width = width or len(row)
                if len(row) != width:
                    remedy = "fill the row up"
                    if len(row) > width:
                        remedy = "quote a cell that contains the separator"
                    problem = f"{len(row)} cells, the header has {width}"
                    raise builder.error(line, f"{problem}; {remedy}")
                cells = row
        if cells is not None:
            yield line, cells


def _lines(path: Path, bad: list[tuple[int, str]] | None = None) -> Iterator[str]:
    """Yield the lines of a file; Excel's `sep=` line becomes a blank line."""
    for number, line in enumerate(lines(path, bad)):
        yield "\n" if number == 0 and SEPARATOR_LINE.fullmatch(line) else line


def _separator(path: Path) -> str:
    """Return the separator that gives the header a column `image`, or else the most columns."""
    header = next((line for line in _lines(path) if line.strip()), "")

    def fitness(sign: str) -> tuple[bool, int]:
        cells = next(csv.reader([header], delimiter=sign), [])
        return "image" in [cell.strip().lower() for cell in cells], len(cells)

    try:
        return max(SEPARATORS, key=fitness)
    except csv.Error as error:
        remedy = "check the quotes and line ends of the header"
        raise DataError(f"{path}, line 1: {error}; {remedy}") from None


@dataclass(frozen=True)
class Form:
    """Positions of a table's columns; a table with a column `label` is in long form."""

    at: dict[str, int]  # of image, label, negative and split; without image, rows are numbered
    classes: tuple[tuple[int, str], ...]  # columns of single classes
    features: tuple[tuple[int, str], ...]
    place: int  # line of the header

    @classmethod
    def of(cls, header: Sequence[str], columns: Columns, place: int) -> Form:
        """Return the form of a header; in long form, other columns are ignored."""
        names = [name.strip() for name in header]
        at = named_columns(names, columns)
        features: tuple[tuple[int, str], ...] = ()
        if columns.features is not None:
            lowered = [name.lower() for name in names]
            if "image" not in at and "id" in lowered:
                at["image"] = lowered.index("id")
            chosen = feature_columns(names, columns.features, set(at.values()))
            features = tuple((i, names[i]) for i in chosen)
        elif "image" not in at:
            remedy = "rename the column of paths to 'image', or give --image-column"
            if hint := recipe(names) or ("id" in map(str.lower, names) and FEATURES):
                remedy += f"; {hint}"
            raise DataError(f"no column 'image'; the columns are {listed(names)}; {remedy}")
        others = {i: name for i, name in enumerate(names) if i not in at.values()}
        if "label" not in at:
            at.pop("negative", None)
            single = {i: name for i, name in others.items() if (i, name) not in features}
            return cls(at, _class_columns(single), features, place)
        optional = [name for name in ("negative", "split") if name not in at]
        for name in others.values():
            hint = suggestion(name, optional, 0.8)
            if name.lower() not in COLUMNS and hint:
                raise DataError(f"column {name!r} is not known{hint}")
        return cls(at, (), features, place)

    @property
    def used(self) -> list[int]:
        """Positions of all columns that are read."""
        return [*self.at.values(), *(i for i, _ in (*self.classes, *self.features))]

    @property
    def texts(self) -> list[int]:
        """Positions of the columns that must hold text."""
        return [self.at[name] for name in ("image", "split") if name in self.at]

    def row(self, builder: Builder, place: int, cells: Sequence[Any]) -> int:
        """Return the row of a record, with its features."""
        item = cells[self.at["image"]] if "image" in self.at else str(len(builder))
        split = split_of(builder, place, cells[self.at["split"]] if "split" in self.at else "")
        row = builder.row(item_of(builder, place, item), place, split)
        if self.features:
            with builder.located(place):
                values = [feature(cells[i], name) for i, name in self.features]
            builder.features(row, values, place)
        return row

    def remedy(self, cell: str) -> str:
        """Return the likely remedy of a cell in a class column that is no label."""
        if is_number(cell) and self.features:
            return "name a column of numbers in --features too, or remove it"
        if is_number(cell):
            return recipe([name for _, name in self.classes]) or FEATURES
        if "image" not in self.at:
            return "name a column of row names 'id', or give --image-column"
        return "name a column of class names 'label', or give --label-column"


def named_columns(
    names: Sequence[str], columns: Columns, wanted: Sequence[str] = COLUMNS
) -> dict[str, int]:
    """Return the positions of the wanted columns that the table has."""
    lowered = [name.lower() for name in names]
    own = {"image": columns.image, "label": columns.label}
    at = {}
    for name in wanted:
        called = own.get(name)
        if called is not None:
            at[name] = position(names, called, f"--{name}-column")
        elif lowered.count(name) > 1:
            raise DataError(f"column {name!r} appears twice; remove one")
        elif name in lowered:
            at[name] = lowered.index(name)
    return at


def _class_columns(columns: dict[int, str]) -> tuple[tuple[int, str], ...]:
    """Return the columns as classes, if each has a name of its own."""
    if not columns:
        raise DataError(
            "no column 'label' and none of a class; add a column 'label', or one per class, "
            "or give --label-column"
        )
    counts = Counter(columns.values())
    for i, name in columns.items():
        problem = f"column {name!r} appears twice" if name else f"column {i + 1} has no name"
        if not name or counts[name] > 1:
            raise DataError(f"{problem}; give each class one named column")
    return tuple(columns.items())


def item_of(builder: Builder, place: int, image: str) -> str:
    """Return the item of an image cell."""
    item = builder.path(image.strip())
    if not item:
        raise builder.error(place, "the image cell is empty; name the image or remove the row")
    return item


def split_of(builder: Builder, place: int, split: str) -> str:
    """Return the split of a cell; train if it is empty."""
    part = split.strip().lower() or "train"
    if part not in SPLITS:
        raise builder.error(
            place, f"split {split!r} is not train, val or test{suggestion(part, SPLITS, 0.4)}"
        )
    return part


def _fill_long(builder: Builder, form: Form, rows: Iterator[Record]) -> None:
    """Add records whose cells hold class names joined by `|`, or lists of names."""
    for place, cells in rows:
        with builder.record():
            row = form.row(builder, place, cells)
            for name, value in (("label", 1), ("negative", -1)):
                if name in form.at:
                    builder.names(row, cells[form.at[name]], value, place)


def _fill_wide(builder: Builder, form: Form, rows: Iterator[Record]) -> None:
    """Add records with one cell per class: 1, 0, -1 or empty."""
    classes = [(i, name, builder.column(name, form.place)) for i, name in form.classes]
    for place, cells in rows:
        with builder.record():
            row = form.row(builder, place, cells)
            for i, name, column in classes:
                if not (cell := cells[i]) or cell == "0":
                    continue
                value = VALUES.get(str(cell).strip())
                if value is None:
                    problem = f"{cell!r} in column {name!r}; a label is 1, 0, -1 or empty"
                    raise builder.error(place, f"{problem}; {form.remedy(str(cell))}")
                if value:
                    builder.add(row, column, value, place)


def _checked_long(
    builder: Builder, form: Form, header: Sequence[str], records: Iterator[Record]
) -> Iterator[Record]:
    """Yield the records of a table in long form; raise if its head shows that it is wide.

    Then `label` is likely a class among others that have a column each.
    """
    head = []
    for record in islice(records, HEAD):
        head.append(record)
        yield record

    def holds_values(column: int) -> bool:
        cells = {str(cells[column]).strip() for _, cells in head} - {""}
        return bool(cells) and cells <= VALUES.keys()

    if builder.classes is None and builder.reading.columns.label is None:
        named = form.used
        others = [name for i, name in enumerate(header) if i not in named and holds_values(i)]
        if others and holds_values(form.at["label"]):
            problem = "column 'label' holds nothing but 1, 0 and -1, and so does"
            remedy = "if each column is a class, rename this one"
            remedy += "; if it holds names, give them with --classes"
            raise builder.error(form.place, f"{problem} {others[0].strip()!r}; {remedy}")
    yield from records
