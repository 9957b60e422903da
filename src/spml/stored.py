"""Readers of JSON and .npz files whose errors name the file and a remedy."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.errors import DAMAGED, UserError

Record = dict[str, Any]
Array = npt.NDArray[Any]


def read_json(path: Path, remedy: str = DAMAGED) -> Record:
    """Read the JSON object in a file; an error ends with the remedy."""
    return parse_object(read_text(path, remedy), str(path), remedy)


def read_text(path: Path, remedy: str = DAMAGED) -> str:
    """Read a UTF-8 text file; an error ends with the remedy."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}; {remedy}") from error


def parse_object(text: str, where: str, remedy: str = DAMAGED) -> Record:
    """Parse a JSON object; `where` names its file, and its line if the file has several."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error}); {remedy}") from error
    if not isinstance(value, dict):
        raise UserError(f"{where}: not a JSON object; {remedy}")
    return value


def read_arrays(
    path: Path, required: Sequence[str], optional: Sequence[str] = (), remedy: str = DAMAGED
) -> dict[str, Array] | None:
    """Read the named arrays of an .npz file; None if there is no such file.

    Args:
        path: The file.
        required: Arrays that the file must hold.
        optional: Arrays that are read if the file holds them.
        remedy: What an error tells the user to do.
    """
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            missing = [name for name in required if name not in stored.files]
            present = [name for name in (*required, *optional) if name in stored.files]
            arrays = {name: stored[name] for name in present}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a readable .npz file: {error}; {remedy}") from error
    if missing:
        raise UserError(f"{path} has no array {', '.join(missing)}; {remedy}")
    return arrays


def demand(record: Record, names: Sequence[str], where: object) -> None:
    """Raise UserError if a record lacks one of the names."""
    if missing := [name for name in names if name not in record]:
        raise UserError(f"{where} lacks {', '.join(missing)}: it is not whole; {DAMAGED}")


def number(record: Record, key: str, path: Path) -> float | None:
    """Return a number of a record, or None if it is absent or null."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{path}: {key!r} must be a number, it is {value!r}")
    return float(value)
