"""Items as arrays (features or pictures) with labels, class names and splits: a `.npz` file, or `.npy` files."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data.names import ClassList, refuse_name, suggestion
from spml.data.readers.builder import OnError, Reading, tell
from spml.data.table import SPLITS, LabelTable, SparseLabels
from spml.errors import DataError
from spml.files import opening

Array = npt.NDArray[Any]

CHUNK = 65536  # rows of x looked at together
BROKEN = (  # what numpy and zipfile raise on a damaged file
    *(
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        EOFError,
        OverflowError,
        MemoryError,
    ),
    *(
        NotImplementedError,
        RuntimeError,
        SyntaxError,
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        TokenError,
    ),
)


def read_arrays(path: Path, how: Reading) -> dict[str, LabelTable]:
    """The tables of the arrays `x`, `labels`, `classes`, and optionally `split` and `items`; none may be pickled.

    Args:
        path: a `.npz` file of them, or the `.npy` file of x with `labels.npy` and the others beside it.
        how: its classes replace the file's `classes`, whose columns they name.
    """
    arrays = _beside(path) if path.suffix.lower() == ".npy" else load_arrays(path)
    sound = Sound(path, how.on_error)
    x = pictures_or_features(path, _needed(path, arrays, "x"), sound)
    sparse = label_rows(f"{path}: labels", _legal(_needed(path, arrays, "labels"), sound), len(x))
    if how.classes is None or "classes" in arrays:
        names = strings(
            f"{path}: classes",
            _needed(path, arrays, "classes"),
            sparse.num_classes,
            "columns of labels",
        )
    else:
        names = list(how.classes.display)
    if how.classes is not None:
        sparse, names = (
            _in_order(path, sparse, names, how.classes),
            list(how.classes.display.values()),
        )
    for column, name in enumerate(names):
        if not name.strip():
            raise DataError(f"{path}: classes: column {column} has no name; give each class one")
        refuse_name(name, f"{path}: classes: ")
    items = [f"{i}" for i in range(len(x))]
    if "items" in arrays:
        items = strings(f"{path}: items", arrays["items"], len(x), "rows of x")
    try:
        table = LabelTable(
            items, names, sparse.positives(-1) if how.labels == "complete" else sparse, x=x
        )
    except DataError as error:
        raise DataError(f"{path}: classes: {error}") from None
    splits = np.full(len(x), "train")
    if "split" in arrays:
        splits = np.array(strings(f"{path}: split", arrays["split"], len(x), "rows of x"))
        sound.check(np.isin(splits, SPLITS), 0, lambda row: _split_problem(str(splits[row]), row))
    splits[list(sound.broken)] = ""
    if not (splits != "").any():
        raise DataError(f"{path}: no row is left without those that cannot be read")
    if (splits == "train").all():
        return {"train": table}
    return {name: table.take(splits == name) for name in SPLITS if name in splits}


class Sound:
    """The rows of arrays that cannot be taken, told one by one."""

    def __init__(self, path: Path, on_error: OnError | None) -> None:
        self.path, self.on_error = path, on_error
        self.broken: set[int] = set()

    def check(self, good: npt.ArrayLike, start: int, describe: Callable[[int], str]) -> None:
        """Tell of the rows from `start` on that are not good; a row is told of once."""
        for row in (start + np.flatnonzero(np.logical_not(good))).tolist():
            if row not in self.broken:
                tell(DataError(f"{self.path}: {describe(row)}"), self.on_error)
                self.broken.add(row)


def _split_problem(value: str, row: int) -> str:
    return (
        f"split: {value!r} in row {row} is not train, val or test{suggestion(value, SPLITS, 0.4)}"
    )


def _legal(labels: Array, sound: Sound) -> Array:
    """The labels, with zeros in the rows that hold something else than labels; without `on_error`, as they are."""
    if sound.on_error is None or labels.dtype.kind not in "biuf" or labels.ndim != 2:
        return labels
    legal = np.isin(labels, (-1, 0, 1))
    if legal.all():
        return labels

    def describe(row: int) -> str:
        column = int(np.argmin(legal[row]))
        return (
            f"labels: {labels[row, column]!s} in row {row}, column {column}; a label is 1, 0 or -1"
        )

    sound.check(legal.all(axis=1), 0, describe)
    return np.where(legal, labels, 0)


def load_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a `.npz` file, by name."""
    with opening(path):
        if not zipfile.is_zipfile(path):
            raise DataError(f"{path}: not a .npz file; write it with numpy.savez")
        try:
            with np.load(path, allow_pickle=False) as file:
                return {key: _member(path, file, key) for key in file.files}
        except DataError:
            raise
        except BROKEN as error:
            raise DataError(
                f"{path}: not a .npz file ({_reason(error)}); write it with numpy.savez"
            ) from None


def _beside(path: Path) -> dict[str, Array]:
    """x as it lies on the disk, and the arrays next to it."""
    others = {key: path.with_name(f"{key}.npy") for key in ("labels", "classes", "split", "items")}
    return {"x": load_array(path)} | {
        key: load_array(file) for key, file in others.items() if file.exists()
    }


def load_array(path: Path) -> Array:
    """The array of a `.npy` file, left on the disk until it is used."""
    try:
        with opening(path):
            return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except BROKEN as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path}: not a .npy file of plain numbers or strings ({_reason(error)})"
        ) from None


def _member(path: Path, file: Any, key: str) -> Array:
    try:
        return np.asarray(file[key])
    except BROKEN as error:
        why = f"cannot be read ({_reason(error)})"
        raise DataError(
            f"{path}: {key}: {why}; store plain numbers or strings, no objects"
        ) from None


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _needed(path: Path, arrays: dict[str, Array], key: str) -> Array:
    if key not in arrays:
        there = ", ".join(arrays) or "none"
        raise DataError(
            f"{path}: no array {key!r}; the arrays are {there}; x, labels and classes are needed"
        )
    return arrays[key]


def pictures_or_features(path: Path, x: Array, sound: Sound) -> Array:
    """Features as float32 (N, D), pictures as uint8 (N, 3, H, W); rows that hold no numbers are told of."""
    if x.size and x.ndim == 2 and x.dtype.kind in "fiu":
        with np.errstate(over="ignore"):
            features = x.astype(np.float32, copy=False)
        for start in range(0, len(x), CHUNK):
            finite = np.isfinite(features[start : start + CHUNK]).all(axis=1)
            sound.check(finite, start, _not_finite)
        return features
    if x.size and x.ndim == 4 and x.dtype == np.uint8 and 3 in (x.shape[1], x.shape[3]):
        return x if x.shape[1] == 3 else np.ascontiguousarray(np.moveaxis(x, 3, 1))
    raise DataError(
        f"{path}: x: {x.dtype} {x.shape}; give features (N, D) or uint8 pictures (N, H, W, 3) or (N, 3, H, W)"
    )


def _not_finite(row: int) -> str:
    return f"x: row {row} holds a value that is not finite as float32; remove the row or fill it in"


def _in_order(
    path: Path, sparse: SparseLabels, names: list[str], classes: ClassList
) -> SparseLabels:
    """The labels with their columns in the order of the class list, which has the same names."""
    for name, count in Counter(names).items():
        if name not in classes.display:
            raise DataError(f"{path}: classes: {name!r} {classes.lacking(name)}")
        if count > 1:
            raise DataError(
                f"{path}: classes: class {name!r} stands twice; give each class one column"
            )
    if len(classes.display) != sparse.num_classes:
        given = f"{len(classes.display)} names in the class list ({classes.source})"
        raise DataError(
            f"{path}: classes: {given} for {sparse.num_classes} columns of labels; give one each"
        )
    place = {name: i for i, name in enumerate(classes.display)}
    return sparse.reorder([place[name] for name in names])


def label_rows(place: str, labels: Array, count: int) -> SparseLabels:
    """Labels of that many rows, of which at least one has a positive."""
    if labels.dtype.kind not in "biuf" or labels.ndim != 2 or len(labels) != count:
        raise DataError(
            f"{place}: {labels.dtype} {labels.shape}; give int8 (N, C) with N = {count}, the rows of x"
        )
    try:
        sparse = SparseLabels.from_dense(labels)
    except DataError as error:
        raise DataError(f"{place}: {error}") from None
    if not (sparse.values == 1).any():
        raise DataError(f"{place}: no row has a label; give at least one row a 1")
    return sparse


def strings(place: str, values: Array, count: int, what: str) -> list[str]:
    """A list of that many strings."""
    if values.ndim != 1 or values.dtype.kind not in "US":
        raise DataError(f"{place}: {values.dtype} {values.shape}; give a list of strings")
    if len(values) != count:
        raise DataError(f"{place}: {len(values)} entries for {count} {what}; give one each")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    return [str(value) for value in values]
