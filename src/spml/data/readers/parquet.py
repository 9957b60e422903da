"""Parquet files of labels, in the two forms of a CSV file; helpers for all Arrow files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data.readers.builder import Builder, Reading
from spml.data.readers.tabular import Form, fill_long, row_of
from spml.data.table import LabelTable
from spml.errors import DataError
from spml.files import opening

Array = npt.NDArray[Any]
BATCH = 65536  # rows that are decoded at once


@contextmanager
def arrow_errors(path: Path, problem: str = "not a sound Parquet file") -> Iterator[None]:
    """Turn errors of pyarrow and of the system about a file into a DataError that names it."""
    import pyarrow as pa

    try:
        with opening(path):
            yield
    except (pa.ArrowException, UnicodeDecodeError, MemoryError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: {problem} ({reason}); write it again") from None


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds strings, or only nulls."""
    from pyarrow import types

    plain = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(test(plain) for test in tests)


def inner_type(kind: Any) -> Any:
    """Return the type of a column's values, or of the values in its lists."""
    from pyarrow import types

    kind = kind.value_type if types.is_list(kind) or types.is_large_list(kind) else kind
    return kind.value_type if types.is_dictionary(kind) else kind


def read_parquet(path: Path, root: Path | None, reading: Reading) -> dict[str, LabelTable]:
    """Read a Parquet file with the columns of a CSV file.

    `label` and `negative` hold names joined by `|` or lists of names; class columns hold 1, 0, -1,
    booleans or null.
    """
    import pyarrow.parquet as pq

    builder = Builder(path, reading, root or path.parent, "row")
    with arrow_errors(path), path.open("rb") as stream, pq.ParquetFile(stream) as file:
        form = Form.of(builder, 0, file.schema_arrow.names)
        if form.features:
            raise DataError(f"{path}: --features reads CSV files; write the table as one")
        _check_types(path, form, file.schema_arrow)
        if form.label is not None:
            fill_long(builder, form, _records(file, form))
        else:
            form.columns(builder)
            _fill_wide(builder, form, file)
    return builder.tables(sort_classes=form.label is not None)


def _check_types(path: Path, form: Form, schema: Any) -> None:
    columns = ((form.image, False), (form.split, False), (form.label, True), (form.negative, True))
    for place, lists in columns:
        field = None if place is None else schema.field(place)
        if field is not None and not is_text(inner_type(field.type) if lists else field.type):
            wanted = "strings or lists of strings" if lists else "strings"
            raise DataError(
                f"{path}: column {field.name!r} holds {field.type}; it must hold {wanted}"
            )
    for place, name in form.classes:
        if not _is_label(kind := schema.field(place).type):
            raise DataError(
                f"{path}: column {name!r} holds {kind}; a label is 1, 0, -1 or null; "
                "a column of class names is called 'label', or --label-column"
            )


def _is_label(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def _batches(file: Any, places: list[int]) -> Iterator[tuple[int, dict[int, Any]]]:
    """Yield the number of the first row and the requested columns, of each batch."""
    names = file.schema_arrow.names
    first = 1
    for batch in file.iter_batches(BATCH, columns=[names[place] for place in places]):
        yield first, {place: batch.column(names[place]) for place in places}
        first += batch.num_rows


def _records(file: Any, form: Form) -> Iterator[tuple[int, list[Any]]]:
    columns = (form.image, form.label, form.negative, form.split)
    places = [place for place in columns if place is not None]
    width = max(places) + 1
    for first, batch in _batches(file, places):
        cells: list[Any] = [""] * width
        rows = zip(*(batch[place].to_pylist() for place in places), strict=True)
        for number, values in enumerate(rows, first):
            for place, value in zip(places, values, strict=True):
                cells[place] = "" if value is None else value
            yield number, cells


def _fill_wide(builder: Builder, form: Form, file: Any) -> None:
    assert form.image is not None  # only rows of features lack it
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
    """Return rows and values of the known labels, by class, and the first bad cell of each row."""
    known: dict[str, tuple[Array, Array]] = {}
    wrong: dict[int, str] = {}
    for place, name in form.classes:
        values = np.nan_to_num(columns[place].to_numpy(zero_copy_only=False).astype(np.float64))
        at = np.flatnonzero(values)
        known[name] = at, values[at]
        for i in at[np.abs(values[at]) != 1].tolist():
            wrong.setdefault(i, f"{values[i]:g} in column {name!r}")
    return known, wrong
