"""Where rows stand in the files they were read from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Places:
    """Where each row stands in the files it was read from, for messages.

    Attributes:
        files: each with what a place in it is called: (photos.csv, "line").
        numbers: place of each row.
        file: which of the files each row is from.
    """

    files: tuple[tuple[Path, str], ...]
    numbers: npt.NDArray[np.int64]
    file: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, file: Path, unit: str, numbers: npt.ArrayLike) -> Places:
        """Of rows that are all from one file."""
        given = np.asarray(numbers, dtype=np.int64)
        return cls(((file, unit),), given, np.zeros(len(given), np.uint8))

    def take(self, rows: npt.NDArray[np.int64]) -> Places:
        """Those of the given rows."""
        return Places(self.files, self.numbers[rows], self.file[rows])

    def followed_by(self, other: Places) -> Places:
        """Those of two tables, one after the other."""
        numbers = np.concatenate([self.numbers, other.numbers])
        if self.files == other.files:
            return Places(self.files, numbers, np.concatenate([self.file, other.file]))
        file = np.concatenate([self.file, other.file + np.uint8(len(self.files))])
        return Places(self.files + other.files, numbers, file)

    def short(self, row: int) -> str:
        """Unit and number of a row: "line 7"."""
        return f"{self.files[self.file[row]][1]} {self.numbers[row]}"

    def text(self, row: int) -> str:
        """File, unit and number of a row."""
        return f"{self.files[self.file[row]][0]}, {self.short(row)}"
