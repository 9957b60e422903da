"""Convert inputs of `SinglePositiveClassifier` to tables: features, pictures, paths, labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data import LabelTable, SparseLabels
from spml.data.experiment import Rows, split, unlabelled
from spml.errors import DataError, UserError
from spml.metrics.scores import as_numpy

Array = npt.NDArray[Any]
NAMED = 5  # classes listed in a message
NO_LABEL = "y has no label at all; give at least one item a label"


def plain(values: Any) -> Any:
    """Torch tensors as numpy arrays; other values unchanged."""
    return as_numpy(values) if type(values).__module__.partition(".")[0] == "torch" else values


def paths(items: Any) -> list[str] | None:
    """Paths of pictures; None if the items are something else."""
    if isinstance(items, (str, Path)):
        raise DataError(f"X is one path, {str(items)!r}; give a list of paths")
    if not isinstance(items, (list, tuple)):
        kind = getattr(getattr(items, "dtype", None), "kind", None)
        if kind not in ("U", "O", "T") or items.ndim != 1:
            return None
    all_text = len(items) > 0 and all(isinstance(item, (str, Path)) for item in items)
    return list(map(str, items)) if all_text else None


def pictures(items: Any) -> Array | None:
    """uint8 pictures as (N, 3, H, W); None if the items are no pictures."""
    if not isinstance(items, np.ndarray) or items.ndim != 4:
        return None
    if items.dtype != np.uint8 or 3 not in (items.shape[1], items.shape[3]) or not items.size:
        raise DataError(
            f"X is {items.dtype} {items.shape}; pictures are uint8 (N, 3, H, W) or (N, H, W, 3)"
        )
    return items if items.shape[1] == 3 else np.ascontiguousarray(np.moveaxis(items, 3, 1))


def labels(y: Any, classes: Iterable[Any] | None) -> tuple[Array, SparseLabels]:
    """Classes and known labels from any supported form of y.

    Args:
        y: (n, C) of 1, 0, -1, dense or sparse; a class per item; or a list of classes per item.
        classes: their names in order; None uses the columns' numbers or names, or the sorted
            classes of y.
    """
    if y is None:
        raise UserError("requires y to be passed, but the target y is None")
    y = plain(y)
    if hasattr(y, "tocoo"):
        return _from_sparse(y, classes)
    lists = (list, tuple, set, frozenset)
    listed = isinstance(y, (list, tuple)) or (getattr(y, "ndim", 0) == 1 and y.dtype == object)
    if listed and any(isinstance(row, (*lists, np.ndarray)) for row in y):
        y = [row.tolist() if isinstance(row, np.ndarray) else row for row in y]
        if not _is_indicator(y, classes):
            return _from_lists(
                [list(row) if isinstance(row, lists) else [row] for row in y], classes
            )
    columns = getattr(y, "columns", None)
    named = columns if classes is None else classes
    array = np.asarray(y)
    if columns is not None and classes is not None and array.ndim == 2:
        array = array[:, _order(list(columns), np.asarray(list(classes)).tolist())]
    if array.dtype.kind == "c":
        raise UserError("Complex data not supported: y must hold classes, or 1, 0 and -1")
    if array.ndim == 1:
        return _from_lists([[value] for value in array.tolist()], classes, array)
    if array.ndim == 2 and array.dtype.kind in "biuf":
        return _columns(array.shape[1], named), SparseLabels.from_dense(array)
    raise DataError(
        f"y is {array.dtype} {array.shape}; "
        "give (n, C) of 1, 0 and -1, a class per item, or a list of classes per item"
    )


def _is_indicator(rows: Sequence[Any], classes: Iterable[Any] | None) -> bool:
    """Whether lists are rows of 1, 0 and -1 for two or more classes, and not class names."""
    lengths = {len(row) if isinstance(row, (list, tuple)) else 0 for row in rows}
    right = min(lengths) > 1 if classes is None else lengths == {len(list(classes))}
    return len(lengths) == 1 and right and all(value in (1, 0, -1) for row in rows for value in row)


def _order(columns: list[Any], classes: list[Any]) -> list[int]:
    """Column of each class in a data frame; unnamed columns follow the order of the classes."""
    place = {name: i for i, name in enumerate(columns)}
    if len(place) == len(columns) == len(classes) and all(name in place for name in classes):
        return [place[name] for name in classes]
    if all(isinstance(name, str) for name in (*columns, *classes)) and len(columns) == len(classes):
        other = next(name for name in columns if name not in classes or columns.count(name) > 1)
        listed = ", ".join(map(repr, classes[:NAMED])) + ", …" * (len(classes) > NAMED)
        raise DataError(
            f"y has a column {other!r}, which is not one of the classes ({listed}), each once; "
            "rename it"
        )
    return list(range(len(columns)))


def _columns(count: int, named: Iterable[Any] | None) -> Array:
    names = np.arange(count) if named is None else np.asarray(list(named))
    if len(names) != count:
        raise UserError(f"{len(names)} classes are named, y has {count} columns; name each column")
    return names


def _from_sparse(y: Any, classes: Iterable[Any] | None) -> tuple[Array, SparseLabels]:
    rows = y.tocsr()
    if rows.ndim != 2:
        raise DataError(f"y is sparse with shape {rows.shape}; give (n, C)")
    rows.sum_duplicates()  # which also sorts them
    legal = np.isin(rows.data, (-1, 0, 1))
    if not legal.all():
        raise DataError(
            f"y holds {rows.data[~legal][0]}; only 1, 0 (unknown) and -1 (negative) are labels"
        )
    entries = rows.tocoo()
    known = SparseLabels.from_entries(entries.row, entries.col, entries.data, rows.shape, 0)
    return _columns(rows.shape[1], classes), known


def _from_lists(
    rows: list[list[Any]], classes: Iterable[Any] | None, array: Array | None = None
) -> tuple[Array, SparseLabels]:
    """Positives by class; default classes are the sorted ones of y."""
    entries = [(row, value) for row, values in enumerate(rows) for value in values]
    if not entries:
        raise DataError(NO_LABEL if rows else "y is empty; give a label per item")
    for row, value in entries:
        if value is None or (isinstance(value, float) and not np.isfinite(value)):
            raise DataError(
                f"Input y contains NaN, infinity or None in row {row}; "
                "no label at all is an empty list"
            )
        if classes is None and isinstance(value, str) and "|" in value:
            raise DataError(
                f"row {row} of y: {value!r} is several names joined by '|'; "
                "give a list of classes per item"
            )
        if isinstance(value, float) and value != int(value):
            raise DataError(
                f"Unknown label type: continuous, {value} in row {row} of y; "
                "a class is a name or a number"
            )
    flat = [value for _, value in entries]
    if len({isinstance(value, str) for value in flat}) > 1:
        raise DataError("y holds names and numbers; give classes of one kind")
    if classes is None:
        names = np.unique(np.asarray(flat) if array is None else array)
    else:
        names = np.asarray(list(classes))
    place = {name: i for i, name in enumerate(names.tolist())}
    for row, value in entries:
        if value not in place:
            raise DataError(
                f"row {row} of y: {value!r} is not among the {len(place)} classes; see classes="
            )
    at = np.array(sorted({(row, place[value]) for row, value in entries}), np.int64)
    ones = np.ones(len(at), np.int8)
    return names, SparseLabels.from_entries(at[:, 0], at[:, 1], ones, (len(rows), len(names)), 0)


def set_aside(known: SparseLabels, fraction: float | None, seed: int) -> tuple[Rows, Rows]:
    """Training rows, and rows that choose the epoch: none if the fraction is None."""
    count = known.shape[0]
    train_rows, val_rows = np.arange(count), np.arange(0)
    if fraction is not None:
        if not 0 < fraction < 1:
            raise UserError(
                f"validation={fraction} must be above 0 and below 1, or None to train on all rows"
            )
        train_rows, val_rows = split(count, max(fraction, 1 / count), seed)
        if unlabelled(known.take(val_rows)) or unlabelled(known.take(train_rows)):
            raise DataError(
                f"of {len(train_rows)} rows to train on and {len(val_rows)} to choose the epoch "
                "with, one part has no label; label more items, or give validation=None"
            )
    if len(train_rows) < 2:
        raise DataError(
            f"n_samples = {count} leaves {len(train_rows)} to train on; at least 2 are needed"
        )
    return train_rows, val_rows


def table(items: list[str] | Array, names: Array, known: SparseLabels) -> LabelTable:
    """A table of items with their labels; class names are text."""
    x = None if isinstance(items, list) else items
    listed = items if isinstance(items, list) else [str(row) for row in range(len(items))]
    return LabelTable(listed, [str(name) for name in names.tolist()], known, x=x)
