"""The two forms of a user's table: class names in a column `label` (long), or a column per class (wide)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from spml.data.names import suggestion
from spml.data.readers.builder import Builder
from spml.data.table import SPLITS

COLUMNS = ("image", "label", "negative", "split")
VALUES = {
    "1": 1,
    "1.0": 1,
    "-1": -1,
    "-1.0": -1,
    "0": 0,
    "0.0": 0,
    "": 0,
}  # 1.0 is what pandas writes

HEAD = 100  # rows from which to tell what a column holds
LIKE_LABEL = ("class", "classes", "tag", "tags", "category", "categories")

Record = tuple[int, list[str]]  # place and cells


@dataclass(frozen=True)
class Form:
    """Where the columns of a table stand; the table is in long form where it has a column `label`.

    Attributes:
        image: column of the image's path.
        label: column of its positives.
        negative: column of its known negatives.
        split: column of its split.
        classes: columns of single classes, with their names; none in long form.
        place: of the header.
    """

    image: int
    label: int | None
    negative: int | None
    split: int | None
    classes: tuple[tuple[int, str], ...] = ()
    place: int = 0

    @classmethod
    def of(cls, builder: Builder, place: int, header: Sequence[str]) -> Form:
        """The form that a header describes; in long form columns of other names are not looked at."""
        names = [name.strip() for name in header]
        lowered = [name.lower() for name in names]
        for name in COLUMNS:
            if lowered.count(name) > 1:
                raise builder.error(place, f"column {name!r} stands twice; remove one")
        at = {name: lowered.index(name) for name in COLUMNS if name in lowered}
        if "image" not in at:
            there = ", ".join(map(repr, names))
            raise builder.error(
                place,
                f"no column 'image'; the columns are {there}; name the one of the paths 'image'",
            )
        if "label" not in at:
            return cls(
                at["image"],
                None,
                None,
                at.get("split"),
                _class_columns(builder, place, names, at),
                place,
            )
        optional = [name for name in ("negative", "split") if name not in at]
        for name in names:
            if name.lower() not in COLUMNS and (hint := suggestion(name, optional, 0.8)):
                raise builder.error(place, f"column {name!r} is not known{hint}")
        return cls(at["image"], at["label"], at.get("negative"), at.get("split"), place=place)

    def columns(self, builder: Builder) -> list[tuple[int, str, int]]:
        """Place, name and number of each class's column; the builder then knows them, in this order."""
        return [(i, name, builder.column(name, self.place)) for i, name in self.classes]


def _class_columns(
    builder: Builder, place: int, names: list[str], at: dict[str, int]
) -> tuple[tuple[int, str], ...]:
    columns = [(i, name) for i, name in enumerate(names) if i not in (at["image"], at.get("split"))]
    if not columns:
        raise builder.error(
            place, "no column 'label' and none of a class; add a column 'label', or one per class"
        )
    seen: set[str] = set()
    for i, name in columns:
        if not name or name in seen:
            problem = f"column {name!r} stands twice" if name else f"column {i + 1} has no name"
            raise builder.error(place, f"{problem}; give each class one named column")
        seen.add(name)
    return tuple(columns)


def row_of(builder: Builder, place: int, image: str, split: str) -> int:
    """The row of an image; an empty split is train."""
    return builder.row(item_of(builder, place, image), place, split_of(builder, place, split))


def item_of(builder: Builder, place: int, image: str) -> str:
    """The item that a cell names."""
    item = builder.path(image.strip())
    if not item:
        raise builder.error(place, "the image cell is empty; name the image or remove the row")
    return item


def split_of(builder: Builder, place: int, split: str) -> str:
    """The split that a cell names; train where it is empty."""
    part = split.strip().lower() or "train"
    if part not in SPLITS:
        raise builder.error(
            place, f"split {split!r} is not train, val or test{suggestion(part, SPLITS, 0.4)}"
        )
    return part


def fill_long(builder: Builder, form: Form, records: Iterable[tuple[int, list[Any]]]) -> None:
    """Collect records whose cells hold class names joined by `|`, or lists of names."""
    assert form.label is not None
    for place, cells in records:
        with builder.record():
            row = row_of(
                builder, place, cells[form.image], "" if form.split is None else cells[form.split]
            )
            builder.names(row, cells[form.label], 1, place)
            if form.negative is not None:
                builder.names(row, cells[form.negative], -1, place)


def of_names(
    builder: Builder, form: Form, header: Sequence[str], records: Iterator[Record]
) -> Iterator[Record]:
    """The records of a table in long form; DataError after some where it turns out to be in wide form."""
    head = []
    for record in islice(records, HEAD):
        head.append(record[1])
        yield record
    _refuse_values(builder, form, header, head)
    yield from records


def _refuse_values(
    builder: Builder, form: Form, header: Sequence[str], head: list[list[str]]
) -> None:
    """Raise DataError where `label` is likely a class among others, each of which has a column."""
    filled = {i: {cell for cells in head if (cell := cells[i].strip())} for i in range(len(header))}
    numbers = [i for i, found in filled.items() if found and found <= VALUES.keys()]
    others = [
        repr(header[i].strip())
        for i in numbers
        if i not in (form.image, form.label, form.negative, form.split)
    ]
    if form.label in numbers and others and builder.classes is None:
        held = f"column 'label' holds nothing but 1, 0 and -1, and so does {others[0]}"
        remedy = "if each column is a class, call this one otherwise; if it holds names, give them with --classes"
        raise builder.error(form.place, f"{held}; {remedy}")


def misnamed(columns: Mapping[str, bool]) -> str | None:
    """The column that is likely meant as `label`: the only one of such a name, or the only one of words.

    Args:
        columns: those that hold something else than labels, and whether they may be a column of words.
    """
    words = [name for name, no_numbers in columns.items() if no_numbers]
    like = [
        name
        for name in columns
        if name.lower() in LIKE_LABEL or suggestion(name, ("label", "labels"), 0.8)
    ]
    return next((found[0] for found in (like, words) if len(found) == 1), None)


def _refuse_names(builder: Builder, form: Form, head: list[list[str]]) -> None:
    """Raise DataError where a table in wide form is one in long form whose column of names is not called `label`."""
    cells = {name: [cell for row in head if (cell := row[i].strip())] for i, name in form.classes}
    first = {
        name: next((cell for cell in filled if cell not in VALUES), None)
        for name, filled in cells.items()
    }
    wide = any(
        filled and first[name] is None for name, filled in cells.items()
    )  # beside a class, it may be a slip
    others = {
        name: not (wide or any(map(_is_number, cells[name])))
        for name in cells
        if first[name] is not None
    }
    if (meant := misnamed(others)) is not None:
        remedy = f"rename column {meant!r} to 'label', or write 1, 0, -1 or empty in it"
        raise builder.error(
            form.place, f"no column 'label', and column {meant!r} holds {first[meant]!r}; {remedy}"
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def fill_wide(builder: Builder, form: Form, records: Iterable[Record]) -> None:
    """Collect records with one cell per class: 1, 0, -1 or empty."""
    records = iter(records)
    head = list(islice(records, HEAD))
    _refuse_names(builder, form, [cells for _, cells in head])
    classes = form.columns(builder)
    for place, cells in chain(head, records):
        with builder.record():
            row = row_of(
                builder, place, cells[form.image], "" if form.split is None else cells[form.split]
            )
            for i, name, column in classes:
                if not (cell := cells[i]) or cell == "0":
                    continue
                value = VALUES.get(cell.strip())
                if value is None:
                    remedy = (
                        "a label is 1, 0, -1 or empty; a column of class names is called 'label'"
                    )
                    raise builder.error(place, f"{cell!r} in column {name!r}; {remedy}")
                if value:
                    builder.add(row, column, value, place)
