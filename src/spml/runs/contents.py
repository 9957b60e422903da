"""What the items of a run held when it was trained, so that changed data are noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spml.data import LabelTable
from spml.errors import DAMAGED, UserError
from spml.files import read_arrays
from spml.runs.record import (
    HASH_BYTES,
    SAMPLED,
    TEST,
    TRAIN,
    digests,
    file_status,
    hashed_names,
    hashes,
)

FLAG = "--accept-changed-data"
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Contents:
    """Hashes of the items of one table, by the items' names, and the status of their files."""

    names: npt.NDArray[np.uint64]  # hashes of the names
    digests: npt.NDArray[np.uint8]  # (items, HASH_BYTES); zeros if an item could not be read
    status: npt.NDArray[np.int64]  # length and time of modification in ns; zeros for arrays

    @classmethod
    def of(cls, table: LabelTable) -> Contents:
        """Hash every item."""
        return cls(**hashes(table))

    def changed(self, table: LabelTable) -> Rows:
        """Return the rows whose content differs; items that are new or missing do not count.

        A picture file with the same length and time of modification is read only if it belongs to
        the sample.
        """
        order = np.argsort(self.names, kind="stable")
        names = hashed_names(table)
        if not len(order):
            return np.empty(0, np.int64)
        nearest = np.searchsorted(self.names[order], names).clip(max=len(order) - 1)
        own = order[nearest]
        suspects = self.names[own] == names
        if table.x is None:
            sampled = np.zeros(len(table), bool)
            sampled[np.linspace(0, len(table) - 1, SAMPLED, dtype=np.int64)] = True
            suspects &= sampled | (file_status(table) != self.status[own]).any(axis=1)
        rows = np.flatnonzero(suspects)
        nothing = bytes(HASH_BYTES)
        stored = [self.digests[own[row]].tobytes() for row in rows]
        pairs = zip(digests(table, rows.tolist()), stored, strict=True)
        differ = [nothing not in pair and pair[0] != pair[1] for pair in pairs]
        different: Rows = rows[np.array(differ, bool)]
        return different


def read_contents(path: Path, remedy: str = DAMAGED) -> dict[str, Contents]:
    """Read the contents of the tables of a run; empty if there is no such file."""
    named = {part: [f"{part}_{one.name}" for one in fields(Contents)] for part in (TRAIN, TEST)}
    stored = read_arrays(path, named[TRAIN], named[TEST], remedy) or {}
    parts = {}
    for part, entries in named.items():
        arrays = [stored[name] for name in entries if name in stored]
        if not arrays:
            continue
        shapes = [(array.shape, str(array.dtype)) for array in arrays]
        items = len(arrays[0])
        wanted = [((items,), "uint64"), ((items, HASH_BYTES), "uint8"), ((items, 2), "int64")]
        if shapes != wanted:
            raise UserError(f"{path} is not whole; {remedy}")
        parts[part] = Contents(*arrays)
    return parts


def changed_items(
    parts: Iterable[tuple[Contents | None, LabelTable]],
    source: object,
    *,
    accepted: bool,
    note: Callable[[str], None] | None = None,
) -> int:
    """Return how many items differ from those that a run was trained on.

    Such items are a UserError that names the first, unless they are accepted; `note` then receives
    a line about them.
    """
    total, first, count = 0, "", 0
    for stored, table in parts:
        if stored is None:
            continue
        rows = stored.changed(table)
        if len(rows) and not count:
            first = table.items[rows[0]]
        total, count = total + len(table), count + len(rows)
    if not count:
        return 0
    what = f"{source}: {count:,} of {total:,} items have other content than when the run was "
    what += f"trained, the first is {first!r}"
    if not accepted:
        raise UserError(f"{what}; put them back, train again, or give {FLAG}")
    if note is not None:
        note(what)
    return count
