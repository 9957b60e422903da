"""Names of the columns of a user's table, and the numbers in its columns of features."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from spml.data.names import suggestion
from spml.errors import FEATURES, DataError, UserError

LARGEST = float(np.finfo(np.float32).max)
MAX_LISTED = 12  # columns that a message lists


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a user's table that differ from `image` and `label`."""

    image: str | None = None  # of the paths, or of the names of rows of features
    label: str | None = None  # of the class names
    separator: str = "|"  # between class names in a cell
    features: str | None = None  # names or patterns of the columns of numbers, joined by commas

    def __post_init__(self) -> None:
        if not self.separator:
            raise UserError("--label-separator is empty; give the sign between two class names")

    def changed(self) -> dict[str, Any]:
        """Return what differs from the default, for config.json."""
        default = asdict(Columns())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


def listed(names: Sequence[str]) -> str:
    """Return column names for a message."""
    more = ", …" if len(names) > MAX_LISTED else ""
    return ", ".join(map(repr, names[:MAX_LISTED])) + more


def position(names: Sequence[str], wanted: str, flag: str) -> int:
    """Return the position of the column that a flag names."""
    if names.count(wanted) == 1:
        return names.index(wanted)
    if wanted in names:
        raise DataError(f"column {wanted!r} ({flag}) appears twice; remove one")
    hint = suggestion(wanted, names) or f"; the columns are {listed(names)}"
    raise DataError(f"no column {wanted!r} ({flag}){hint}")


def feature_columns(names: Sequence[str], patterns: str, others: set[int]) -> list[int]:
    """Return the positions of the columns that match a pattern and are none of the others."""
    chosen: set[int] = set()
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        matches = {i for i, name in enumerate(names) if fnmatchcase(name, pattern)} - others
        if not matches:
            raise DataError(
                f"no column of features matches {pattern!r} (--features); "
                f"the columns are {listed(names)}"
            )
        chosen |= matches
    return sorted(chosen)


def recipe(names: Sequence[str]) -> str:
    """Return how to say that numbered columns, such as f1 and f2, hold features; "" without any."""
    numbered = next((name for name in names if re.fullmatch(r".*[^0-9][0-9]+", name)), "")
    if not numbered:
        return ""
    start = numbered.rstrip("0123456789")
    alone = all(name[len(start) :].isdigit() for name in names if name.startswith(start))
    pattern = f"{start}*" if alone else f"{start}[0-9]*"
    return f"{FEATURES} '{pattern}'"


def is_number(cell: str) -> bool:
    """Whether a cell holds a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def feature(cell: str, name: str) -> float:
    """Return the number in a cell of a column of features."""
    text = cell.strip()
    if not text:
        raise DataError(f"the cell in column {name!r} is empty; fill it in or remove the row")
    if not is_number(text) or abs(float(text)) > LARGEST:
        raise DataError(
            f"{cell!r} in column {name!r} is not a finite number; "
            "correct it, or leave the column out of --features"
        )
    return float(text)
