"""Items of users' files without their labels, for prediction: paths row by row, and arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from spml.data.readers.arrays import (
    Array,
    RowCheck,
    load_array,
    load_arrays,
    pictures_or_features,
    strings,
)
from spml.data.readers.builder import OnError, Reading
from spml.data.readers.columns import Columns, feature, feature_columns, listed, position
from spml.data.readers.tabular import builder_of, item_of, named_columns, opened
from spml.errors import DataError

EXAMPLE = "one of them 'image'"
REMEDY = (
    "name the one of the paths 'image', give --image-column, "
    "or give a plain list of paths on standard input (-)"
)


def image_column(
    path: Path, on_error: OnError | None = None, wanted: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the place of each row ("photos.csv, line 7: ") and its cell in the column `image`.

    `wanted` is another name of the column. Other columns of the CSV or Parquet file are ignored;
    rows are read on demand.
    """
    builder = builder_of(path, Reading(on_error=on_error))
    rows, place, header = opened(builder, EXAMPLE)
    names = [name.strip() for name in header]
    with builder.located(place):
        column = named_columns(names, Columns(image=wanted), ("image",)).get("image")
    if column is None:
        problem = f"no column 'image'; {REMEDY}; the columns are {listed(names)}"
        raise builder.error(place, problem)
    for number, cells in rows([column], [column]):
        item = ""
        with builder.record():
            item = item_of(builder, number, cells[column])
        if item:
            yield builder.place(number), item


def rows_of_features(
    path: Path, columns: Columns, known: Sequence[str], on_error: OnError | None = None
) -> Iterator[tuple[str, str, Array]]:
    """Yield the place, the name and the features of each row of a CSV file.

    `known` are the columns of a model's features, in order; empty if it does not name them.
    """
    builder = builder_of(path, Reading(on_error=on_error))
    rows, line, header = opened(builder, EXAMPLE)
    names = [name.strip() for name in header]
    lowered = [name.lower() for name in names]
    item = next((lowered.index(name) for name in ("image", "id") if name in lowered), None)
    with builder.located(line):
        if columns.image is not None:
            item = position(names, columns.image, "--image-column")
        if columns.features is not None:
            wanted = feature_columns(names, columns.features, set() if item is None else {item})
        elif known:
            wanted = [position(names, name, "a feature of the model") for name in known]
        else:
            raise DataError(
                "the model does not name its features; name their columns, in its order, "
                "with --features"
            )
    for count, (place, cells) in enumerate(rows(wanted, ())):
        values = None
        with builder.record(), builder.located(place):
            values = [feature(cells[i], names[i]) for i in wanted]
        if values is not None:
            name = f"{path.stem}/{count}" if item is None else cells[item].strip()
            yield builder.place(place), name, np.asarray(values, np.float32)


def bare_arrays(path: Path, on_error: OnError | None = None) -> tuple[list[str], Array, set[int]]:
    """Return names, float features (N, D) or uint8 pictures (N, 3, H, W), and the invalid rows.

    The file is a `.npz` with `x` and optionally `items`, or the `.npy` of x, then memory-mapped.
    """
    arrays = {"x": load_array(path)} if path.suffix.lower() == ".npy" else load_arrays(path)
    if "x" not in arrays:
        raise DataError(f"{path}: no array 'x'; the arrays are {', '.join(arrays) or 'none'}")
    check = RowCheck(path, on_error)
    x = pictures_or_features(path, arrays["x"], check)
    if "items" not in arrays:
        return [f"{path.stem}/{i}" for i in range(len(x))], x, check.invalid
    return strings(f"{path}: items", arrays["items"], len(x), "rows of x"), x, check.invalid
