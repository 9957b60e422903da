"""The files of a run folder, read with errors that name the file."""

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
    """The JSON object in a file; `remedy` says what to do where it holds none."""
    if not path.is_file():
        raise UserError(f"{path.parent} is {_lacking(path)}")
    return _record(_text(path, remedy), str(path), remedy)


def read_history(path: Path) -> list[Record]:
    """A record an epoch, in the order of the epochs; of an epoch written twice, the later line."""
    epochs: dict[int, Record] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        record = _record(line, where)
        epoch = record.get("epoch")
        if not isinstance(epoch, int) or isinstance(epoch, bool):
            raise UserError(f"{where}: 'epoch' must be a whole number, it is {epoch!r}")
        epochs[epoch] = record
    return [epochs[epoch] for epoch in sorted(epochs)]


def read_arrays(path: Path, required: Sequence[str]) -> dict[str, Array] | None:
    """The arrays of an .npz file, or None where there is no such file."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a readable .npz file: {error}; {DAMAGED}") from error
    lacking = [name for name in required if name not in arrays]
    if lacking:
        raise UserError(f"{path} has no array {', '.join(lacking)}")
    return arrays


def demand(record: Record, names: Sequence[str], where: object) -> None:
    """Raise UserError where a record has not all that is needed of it."""
    if lacking := [name for name in names if name not in record]:
        raise UserError(f"{where} lacks {', '.join(lacking)}: it is not whole; {DAMAGED}")


def number(record: Record, key: str, path: Path) -> float | None:
    """A number of a record, or None where it is absent or null."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{path}: {key!r} must be a number, it is {value!r}")
    return float(value)


def _text(path: Path, remedy: str = DAMAGED) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}; {remedy}") from error


def _record(text: str, where: str, remedy: str = DAMAGED) -> Record:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error}); {remedy}") from error
    if not isinstance(value, dict):
        raise UserError(f"{where}: not a JSON object; {remedy}")
    return value


def _lacking(path: Path) -> str:
    """Why a file of a run is not there, and what to do."""
    if not path.parent.is_dir():
        return "not a folder; give the folder of a finished run"
    if path.name == "config.json" or not (path.parent / "config.json").is_file():
        return f"not a run (no {path.name}); give the folder that spml train wrote"
    return f"not a finished run (no {path.name}); go on with it by spml train with --resume, or give another run"
