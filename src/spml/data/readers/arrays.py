"""Items as arrays (features or pictures) with labels, class names and splits: `.npz` or `.npy`."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data.names import ClassList, refuse_name, suggestion
from spml.data.readers.builder import OnError, Reading, report
from spml.data.table import SPLITS, LabelTable, SparseLabels
from spml.errors import DataError
from spml.files import BROKEN_ARRAYS, sound

Array = npt.NDArray[Any]

CHUNK = 65536  # rows of x that are checked at once
BESIDE_X = ("labels", "classes", "split", "items")


def read_arrays(path: Path, reading: Reading) -> dict[str, LabelTable]:
    """Read the arrays `x`, `labels` and `classes`, and optionally `split` and `items`.

    They stand in a `.npz` file, or in `.npy` files of these names beside that of x. Pickled arrays
    are refused.
    """
    if path.suffix.lower() == ".npy":
        others = {key: path.with_name(f"{key}.npy") for key in BESIDE_X}
        arrays = {"x": load_array(path)}
        arrays |= {key: load_array(file) for key, file in others.items() if file.exists()}
    else:
        arrays = load_arrays(path)
    check = RowCheck(path, reading.on_error)
    x = pictures_or_features(path, _needed(path, arrays, "x"), check)
    sparse = label_rows(check, _needed(path, arrays, "labels"), len(x), "labels: ")
    sparse, names = _classes(path, arrays, sparse, reading.classes)
    items = [f"{i}" for i in range(len(x))]
    if "items" in arrays:
        items = strings(f"{path}: items", arrays["items"], len(x), "rows of x")
    if reading.labels == "complete":
        sparse = sparse.positives(-1)
    try:
        table = LabelTable(items, names, sparse, x=x)
    except DataError as error:
        raise DataError(f"{path}: classes: {error}") from None
    splits = np.full(len(x), "train")
    if "split" in arrays:
        splits = np.array(strings(f"{path}: split", arrays["split"], len(x), "rows of x"))

        def describe(row: int) -> str:
            hint = suggestion(str(splits[row]), SPLITS, 0.4)
            return f"split: {str(splits[row])!r} in row {row} is not train, val or test{hint}"

        check.rows(np.isin(splits, SPLITS), 0, describe)
    splits[list(check.invalid)] = ""
    if not (splits != "").any():
        raise DataError(f"{path}: no valid row remains")
    if (splits == "train").all():
        return {"train": table}
    return {name: table.take(splits == name) for name in SPLITS if name in splits}


def _classes(
    path: Path, arrays: dict[str, Array], sparse: SparseLabels, listed: ClassList | None
) -> tuple[SparseLabels, list[str]]:
    """Return the labels in the order of the class list, and the class names."""
    if listed is None or "classes" in arrays:
        stored = _needed(path, arrays, "classes")
        names = strings(f"{path}: classes", stored, sparse.num_classes, "columns of labels")
    else:
        names = list(listed.display)
    if listed is not None:
        for name, count in Counter(names).items():
            if name not in listed.display:
                raise DataError(f"{path}: classes: {name!r} {listed.lacking(name)}")
            if count > 1:
                raise DataError(
                    f"{path}: classes: class {name!r} appears twice; give each class one column"
                )
        if len(listed.display) != sparse.num_classes:
            listed_names = f"{len(listed.display)} names in the class list ({listed.source})"
            raise DataError(
                f"{path}: classes: {listed_names} for {sparse.num_classes} columns of labels; "
                "give one each"
            )
        at = {name: i for i, name in enumerate(listed.display)}
        sparse = sparse.reorder([at[name] for name in names])
        names = list(listed.display.values())
    for column, name in enumerate(names):
        if not name.strip():
            raise DataError(f"{path}: classes: column {column} has no name; give each class one")
        refuse_name(name, f"{path}: classes: ")
    return sparse, names


class RowCheck:
    """Collects the invalid rows of arrays and reports each one once."""

    def __init__(self, path: Path, on_error: OnError | None = None) -> None:
        self.path, self.on_error = path, on_error
        self.invalid: set[int] = set()

    def rows(self, valid: npt.ArrayLike, start: int, describe: Callable[[int], str]) -> None:
        """Report the rows from `start` on that are not valid."""
        for row in (start + np.flatnonzero(np.logical_not(valid))).tolist():
            if row not in self.invalid:
                report(DataError(f"{self.path}: {describe(row)}"), self.on_error)
                self.invalid.add(row)


def load_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a `.npz` file, by name."""
    arrays = {}
    with sound(path, BROKEN_ARRAYS, "not a .npz file; write it with numpy.savez"):
        if not zipfile.is_zipfile(path):
            raise ValueError("no zip archive")
        with np.load(path, allow_pickle=False) as file:
            for key in file.files:
                problem = f"{key}: cannot be read; store plain numbers or strings, no objects"
                with sound(path, BROKEN_ARRAYS, problem):
                    arrays[key] = np.asarray(file[key])
    return arrays


def load_array(path: Path) -> Array:
    """Return the array of a `.npy` file, memory-mapped."""
    with sound(path, BROKEN_ARRAYS, "not a .npy file of plain numbers or strings"):
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array


def _needed(path: Path, arrays: dict[str, Array], key: str) -> Array:
    if key not in arrays:
        listed = ", ".join(arrays) or "none"
        raise DataError(
            f"{path}: no array {key!r}; the arrays are {listed}; x, labels and classes are needed"
        )
    return arrays[key]


def pictures_or_features(path: Path, x: Array, check: RowCheck) -> Array:
    """Return features as float32 (N, D) or pictures as uint8 (N, 3, H, W); check for NaN."""
    if x.size and x.ndim == 2 and x.dtype.kind in "fiu":
        with np.errstate(over="ignore"):
            features = x.astype(np.float32, copy=False)
        for start in range(0, len(x), CHUNK):
            finite = np.isfinite(features[start : start + CHUNK]).all(axis=1)
            check.rows(
                finite,
                start,
                lambda row: (
                    f"x: row {row} holds a value that is not finite as float32; "
                    "remove the row or fill it in"
                ),
            )
        return features
    if x.size and x.ndim == 4 and x.dtype == np.uint8 and 3 in (x.shape[1], x.shape[3]):
        return x if x.shape[1] == 3 else np.ascontiguousarray(np.moveaxis(x, 3, 1))
    raise DataError(
        f"{path}: x: {x.dtype} {x.shape}; "
        "give features (N, D) or uint8 pictures (N, H, W, 3) or (N, 3, H, W)"
    )


def label_rows(check: RowCheck, labels: Array, count: int, name: str = "") -> SparseLabels:
    """Convert labels of `count` rows; invalid rows are reported, one row must have a positive."""
    place = f"{check.path}: {name}"
    if labels.dtype.kind not in "biuf" or labels.ndim != 2 or len(labels) != count:
        raise DataError(
            f"{place}{labels.dtype} {labels.shape}; "
            f"give int8 (N, C) with N = {count}, the rows of x"
        )
    legal = np.isin(labels, (-1, 0, 1))
    if not legal.all():

        def describe(row: int) -> str:
            column = int(np.argmin(legal[row]))
            value = f"{labels[row, column]!s} in row {row}, column {column}"
            return f"{name}{value}; a label is 1, 0 or -1"

        check.rows(legal.all(axis=1), 0, describe)
        labels = np.where(legal, labels, 0)
    sparse = SparseLabels.from_dense(labels)
    if not (sparse.values == 1).any():
        raise DataError(f"{place}no row has a label; give at least one row a 1")
    return sparse


def strings(place: str, values: Array, count: int, what: str) -> list[str]:
    """Convert an array of `count` strings."""
    if values.ndim != 1 or values.dtype.kind not in "US":
        raise DataError(f"{place}: {values.dtype} {values.shape}; give a list of strings")
    if len(values) != count:
        raise DataError(f"{place}: {len(values)} entries for {count} {what}; give one each")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    return [str(value) for value in values]
