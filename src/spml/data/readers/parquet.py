"""Parquet files of labels, in the two forms of a CSV file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data.readers.arrow import inner_type, is_text, sound
from spml.data.readers.builder import Builder, Reading
from spml.data.readers.table_forms import Form, fill_long, misnamed, row_of
from spml.data.table import LabelTable
from spml.errors import DataError

Array = npt.NDArray[Any]
BATCH = 65536  # rows decoded together


def read_parquet(path: Path, root: Path | None, how: Reading) -> dict[str, LabelTable]:
    """The tables of a Parquet file; `label` and `negative` hold names joined by `|` or lists of names.

    Args:
        path: the file, with the columns of a CSV file; class columns hold 1, 0, -1, booleans or null.
        root: folder of the images; that of the file when None.
        how: as for a CSV file.
    """
    import pyarrow.parquet as pq

    builder = Builder(path, how.classes, "row", how.on_error, root or path.parent)
    with sound(path), path.open("rb") as stream, pq.ParquetFile(stream) as file:
        form = Form.of(builder, 0, file.schema_arrow.names)
        _check_types(path, form, file.schema_arrow)
        if form.label is not None:
            fill_long(builder, form, _records(file, form))
        else:
            form.columns(builder)
            _fill_wide(builder, form, file)
    return builder.tables(how.labels, root or path.parent, sort_classes=form.label is not None)


def _check_types(path: Path, form: Form, schema: Any) -> None:
    from pyarrow import types

    for place, lists in (
        (form.image, False),
        (form.split, False),
        (form.label, True),
        (form.negative, True),
    ):
        field = None if place is None else schema.field(place)
        if field is not None and not is_text(inner_type(field.type) if lists else field.type):
            wanted = "strings or lists of strings" if lists else "strings"
            raise DataError(
                f"{path}: column {field.name!r} holds {field.type}; it must hold {wanted}"
            )
    others = {}
    for place, name in form.classes:
        kind = schema.field(place).type
        if not (
            types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_boolean(kind)
            or types.is_null(kind)
        ):
            others[name] = kind
    if others:
        meant = misnamed(dict.fromkeys(others, True))
        name = meant or next(iter(others))
        remedy = (
            f"rename column {meant!r} to 'label'"
            if meant
            else "a column of class names is called 'label'"
        )
        raise DataError(
            f"{path}: column {name!r} holds {others[name]}; a label is 1, 0, -1 or null; {remedy}"
        )


def _batches(file: Any, places: list[int]) -> Iterator[tuple[int, dict[int, Any]]]:
    """Number of the first row and the columns asked for, of each batch."""
    names = file.schema_arrow.names
    first = 1
    for batch in file.iter_batches(BATCH, columns=[names[place] for place in places]):
        yield first, {place: batch.column(names[place]) for place in places}
        first += batch.num_rows


def _records(file: Any, form: Form) -> Iterator[tuple[int, list[Any]]]:
    places = [
        place for place in (form.image, form.label, form.negative, form.split) if place is not None
    ]
    width = max(places) + 1
    for first, columns in _batches(file, places):
        cells: list[Any] = [""] * width
        for number, values in enumerate(
            zip(*(columns[place].to_pylist() for place in places), strict=True), first
        ):
            for place, value in zip(places, values, strict=True):
                cells[place] = "" if value is None else value
            yield number, cells


def _fill_wide(builder: Builder, form: Form, file: Any) -> None:
    places = [place for place in (form.image, form.split) if place is not None]
    for first, columns in _batches(file, [*places, *(place for place, _ in form.classes)]):
        images = columns[form.image].to_pylist()
        splits = [None] * len(images) if form.split is None else columns[form.split].to_pylist()
        known, wrong = _labels(form, columns)
        rows = np.full(len(images), -1)
        for i, (image, split) in enumerate(zip(images, splits, strict=True)):
            with builder.record():
                if i in wrong:
                    raise builder.error(first + i, f"{wrong[i]}; a label is 1, 0, -1 or null")
                rows[i] = row_of(builder, first + i, image or "", split or "")
        for name, (at, values) in known.items():
            column = builder.column(name, 0)
            for i, value in zip(at.tolist(), values.tolist(), strict=True):
                if rows[i] >= 0:
                    builder.add(int(rows[i]), column, int(value), first + i)


def _labels(
    form: Form, columns: dict[int, Any]
) -> tuple[dict[str, tuple[Array, Array]], dict[int, str]]:
    """Where each class is not 0 in a batch, and its labels there; and the first cell of a row that is no label."""
    known: dict[str, tuple[Array, Array]] = {}
    wrong: dict[int, str] = {}
    for place, name in form.classes:
        values = np.nan_to_num(columns[place].to_numpy(zero_copy_only=False).astype(np.float64))
        at = np.flatnonzero(values)
        known[name] = at, values[at]
        for i in at[np.abs(values[at]) != 1].tolist():
            wrong.setdefault(i, f"{values[i]:g} in column {name!r}")
    return known, wrong
