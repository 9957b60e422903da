"""Tables of labels in long form (names in a column) and wide form (a column per class); CSV files.

Parquet files and Hugging Face datasets use the same two forms.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from spml.data.names import suggestion
from spml.data.readers.builder import Builder, Reading
from spml.data.readers.columns import feature, feature_columns, is_number, listed, position, recipe
from spml.data.table import SPLITS, LabelTable
from spml.errors import DataError
from spml.files import lines

COLUMNS = ("image", "label", "negative", "split")
VALUES = {"1": 1, "1.0": 1, "-1": -1, "-1.0": -1, "0": 0, "0.0": 0, "": 0}  # pandas writes 1.0
HEAD = 100  # rows that show what a column holds
SEPARATORS = ",;\t"
SEPARATOR_LINE = re.compile(r"sep=.\s*", re.IGNORECASE)  # first line that is meant for Excel

Record = tuple[int, list[str]]  # place and cells


def read_csv(path: Path, root: Path | None, reading: Reading) -> dict[str, LabelTable]:
    """Read a CSV file: `image,label[,negative][,split]`, or `image[,split]` and class columns.

    Cells are separated by commas, semicolons or tabs. Without a class list, classes are sorted
    (long form) or in the order of the columns (wide form).
    """
    builder = Builder(path, reading, root or path.parent)
    rows, header_line, header = opened(builder, "such as image,label")
    form = Form.of(builder, header_line, header)
    builder.feature_names = [name for _, name in form.features]
    if form.label is None:
        fill_wide(builder, form, rows)
    else:
        fill_long(builder, form, _checked_long(builder, form, header, rows))
    return builder.tables(sort_classes=form.label is not None)


def opened(builder: Builder, example: str) -> tuple[Iterator[Record], int, list[str]]:
    """Return the rows of a file below its header, and the line and cells of that."""
    rows = records(builder)
    line, header = next(rows, (0, []))
    if not header:
        raise builder.error(0, f"empty file; the first line must name the columns, {example}")
    return rows, line, header


def records(builder: Builder) -> Iterator[Record]:
    """Yield line and cells of each record that is not blank, the header first.

    All records must have as many cells as the header.
    """
    bad: list[tuple[int, str]] = []
    reader = csv_rows(builder.source, bad)
    width = 0
    while True:
        bad.clear()
        line, cells = reader.line_num + 1, None
        with builder.record():
            row = _next_row(builder, reader, line)
            if bad:
                raise builder.error(*bad[0])
            if row is None:
                return
            if any(cell.strip() for cell in row):
                _check_width(builder, line, len(row), width or len(row))
                cells = row
        if cells is not None:
            width = len(cells)
            yield line, cells


def _next_row(builder: Builder, reader: Any, line: int) -> list[str] | None:
    try:
        row: list[str] | None = next(reader, None)
    except csv.Error as error:
        last = reader.line_num
        extent = f", which extends to line {last}" if last > line else ""
        remedy = f"check the quotes and line ends of this row{extent}"
        raise builder.error(line, f"{error}; {remedy}") from None
    return row


def _check_width(builder: Builder, line: int, number: int, width: int) -> None:
    if number != width:
        remedy = "quote a cell that contains the separator" if number > width else "fill the row up"
        raise builder.error(line, f"{number} cells, the header has {width}; {remedy}")


def csv_rows(path: Path, bad: list[tuple[int, str]] | None = None) -> Any:
    """Return a csv reader of a file, with the separator of its header; `bad` as in `lines`."""
    return csv.reader(_lines(path, bad), delimiter=_separator(path), strict=True)


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
    """Positions of a table's columns; a table with a column `label` is in long form.

    `classes` are the columns of single classes, `place` is the line of the header. Without `image`,
    rows of features are numbered.
    """

    image: int | None
    label: int | None
    negative: int | None
    split: int | None
    classes: tuple[tuple[int, str], ...] = ()
    place: int = 0
    features: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of(cls, builder: Builder, place: int, header: Sequence[str]) -> Form:
        """Return the form of a header; in long form, other columns are ignored."""
        names = [name.strip() for name in header]
        with builder.located(place):
            at = _named_columns(builder, names)
            features = _features(builder, names, at)
        image = at.get("image")
        if image is None and not features:
            remedy = "name the one of the paths 'image', or give --image-column"
            if hint := recipe(names):
                remedy += f"; {hint}"
            raise builder.error(
                place, f"no column 'image'; the columns are {listed(names)}; {remedy}"
            )
        if "label" not in at:
            others = {*at.values(), *(i for i, _ in features)}
            classes = _class_columns(builder, place, names, others)
            return cls(image, None, None, at.get("split"), classes, place, features)
        optional = [name for name in ("negative", "split") if name not in at]
        for i, name in enumerate(names):
            hint = suggestion(name, optional, 0.8)
            if i not in at.values() and name.lower() not in COLUMNS and hint:
                raise builder.error(place, f"column {name!r} is not known{hint}")
        return cls(image, at["label"], at.get("negative"), at.get("split"), (), place, features)

    def row(self, builder: Builder, place: int, cells: Sequence[Any]) -> int:
        """Return the row of a record, with its features."""
        split = "" if self.split is None else cells[self.split]
        item = str(len(builder)) if self.image is None else cells[self.image]
        row = row_of(builder, place, item, split)
        if self.features:
            with builder.located(place):
                values = [feature(cells[i], name) for i, name in self.features]
            builder.features(row, values, place)
        return row

    def remedy(self, cell: str) -> str:
        """Return the likely remedy of a cell in a class column that is no label."""
        if is_number(cell) and (hint := recipe([name for _, name in self.classes])):
            return hint
        if self.image is None:
            return "a column of names of rows is called 'id', or --image-column"
        return "a column of class names is called 'label', or --label-column"

    def columns(self, builder: Builder) -> list[tuple[int, str, int]]:
        """Add the classes to the builder; return position, name and number of each."""
        return [(i, name, builder.column(name, self.place)) for i, name in self.classes]


def _named_columns(builder: Builder, names: Sequence[str]) -> dict[str, int]:
    """Return the positions of the columns of COLUMNS that the table has."""
    columns = builder.reading.columns
    lowered = [name.lower() for name in names]
    own = {"image": columns.image, "label": columns.label}
    at = {}
    for name in COLUMNS:
        wanted = own.get(name)
        if wanted is not None:
            at[name] = position(names, wanted, f"--{name}-column")
        elif lowered.count(name) > 1:
            raise DataError(f"column {name!r} appears twice; remove one")
        elif name in lowered:
            at[name] = lowered.index(name)
    return at


def _features(
    builder: Builder, names: Sequence[str], at: dict[str, int]
) -> tuple[tuple[int, str], ...]:
    """Return the columns of features; a column `id` may name their rows."""
    patterns = builder.reading.columns.features
    if patterns is None:
        return ()
    if "image" not in at and "id" in (lowered := [name.lower() for name in names]):
        at["image"] = lowered.index("id")
    return tuple((i, names[i]) for i in feature_columns(names, patterns, set(at.values())))


def _class_columns(
    builder: Builder, place: int, names: list[str], others: set[int]
) -> tuple[tuple[int, str], ...]:
    columns = [(i, name) for i, name in enumerate(names) if i not in others]
    if not columns:
        raise builder.error(
            place,
            "no column 'label' and none of a class; add a column 'label', or one per class, "
            "or give --label-column",
        )
    seen: set[str] = set()
    for i, name in columns:
        if not name or name in seen:
            problem = f"column {name!r} appears twice" if name else f"column {i + 1} has no name"
            raise builder.error(place, f"{problem}; give each class one named column")
        seen.add(name)
    return tuple(columns)


def row_of(builder: Builder, place: int, image: str, split: str) -> int:
    """Return the row of an image; an empty split is train."""
    return builder.row(item_of(builder, place, image), place, split_of(builder, place, split))


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


def fill_long(builder: Builder, form: Form, records: Iterable[tuple[int, list[Any]]]) -> None:
    """Add records whose cells hold class names joined by `|`, or lists of names."""
    assert form.label is not None
    for place, cells in records:
        with builder.record():
            row = form.row(builder, place, cells)
            builder.names(row, cells[form.label], 1, place)
            if form.negative is not None:
                builder.names(row, cells[form.negative], -1, place)


def fill_wide(builder: Builder, form: Form, records: Iterable[Record]) -> None:
    """Add records with one cell per class: 1, 0, -1 or empty."""
    classes = form.columns(builder)
    for place, cells in records:
        with builder.record():
            row = form.row(builder, place, cells)
            for i, name, column in classes:
                if not (cell := cells[i]) or cell == "0":
                    continue
                value = VALUES.get(cell.strip())
                if value is None:
                    remedy = form.remedy(cell)
                    raise builder.error(
                        place,
                        f"{cell!r} in column {name!r}; a label is 1, 0, -1 or empty; {remedy}",
                    )
                if value:
                    builder.add(row, column, value, place)


def _checked_long(
    builder: Builder, form: Form, header: Sequence[str], records: Iterator[Record]
) -> Iterator[Record]:
    """Yield the records of a table in long form; raise if its head shows that it is wide."""
    head = []
    for record in islice(records, HEAD):
        head.append(record)
        yield record
    if builder.classes is None and builder.reading.columns.label is None:
        _refuse_values(builder, form, header, head)
    yield from records


def _refuse_values(builder: Builder, form: Form, header: Sequence[str], head: list[Record]) -> None:
    """Raise DataError if `label` is likely a class among others that have a column each."""
    named = {form.image, form.label, form.negative, form.split, *(i for i, _ in form.features)}

    def holds_values(column: int | None) -> bool:
        cells = {cells[column].strip() for _, cells in head if column is not None} - {""}
        return bool(cells) and cells <= VALUES.keys()

    others = [name for i, name in enumerate(header) if i not in named and holds_values(i)]
    if others and holds_values(form.label):
        problem = "column 'label' holds nothing but 1, 0 and -1, and so does"
        remedy = "if each column is a class, call this one otherwise"
        remedy += "; if it holds names, give them with --classes"
        raise builder.error(form.place, f"{problem} {others[0].strip()!r}; {remedy}")
