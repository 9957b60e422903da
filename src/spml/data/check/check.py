"""`check`: report every problem of a data set at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from spml.data.check.files import Advance, inspect_arrays, inspect_files
from spml.data.check.labels import is_complete, label_problems
from spml.data.check.problems import Findings, Place, Problem
from spml.data.readers.builder import Kind
from spml.data.table import Labels, LabelTable
from spml.errors import DataError

MAX_NAMES = 5  # classes that one message lists


def check(
    tables: dict[str, LabelTable],
    *,
    unread: Iterable[DataError] = (),
    labels: Kind | None = None,
    pictures: bool = True,
    size: int | None = None,
    min_positives: int = 5,
    advance: Advance | None = None,
) -> Findings:
    """Return the problems of a data set's tables, and which of their pictures are the same.

    Features are not checked. Pictures in arrays are compared; files are located, compared and
    decoded.

    Args:
        tables: by split, as `read` returns them.
        unread: the invalid records that `read` reported.
        labels: the kind that `read` used; the fill value of arrays does not show it.
        pictures: decode every picture file, resized to `size` as for training.
        min_positives: warn of a class with fewer positives in train.
        advance: called with the current step, the number done and the total.
    """
    files = {split: table for split, table in tables.items() if table.x is None}
    broken, copies = inspect_files(files, decoded=pictures, size=size, advance=advance)
    copies += inspect_arrays(tables)
    problems = [*unread_problems(unread), *broken]
    for group in copies:
        problems += _leaks(tables, group)
        problems += _copies(tables, group)
    problems += label_problems(tables, min_positives, complete=is_complete(tables, labels))
    return Findings(problems, copies)


def unread_problems(unread: Iterable[DataError]) -> list[Problem]:
    """Return the problems of records that `read` reported."""
    return [Problem("record", str(error)) for error in unread]


def _leaks(tables: dict[str, LabelTable], group: tuple[Place, ...]) -> Iterator[Problem]:
    """Yield the copies outside the last split of the group, in the order train, val, test."""
    last = group[-1]
    for place in group:
        if place.split != last.split:
            row, other = _row(tables, place), _other(tables, last)
            yield Problem("leak", f"{row} in {place.split} is the same picture as {other}", *place)


def _copies(tables: dict[str, LabelTable], group: tuple[Place, ...]) -> Iterator[Problem]:
    """Compare each copy with earlier ones: contradictory, or in the same split."""
    rows = [tables[place.split].rows([place.row])[0] for place in group]
    # The first copy with a positive, and with a negative, of each class.
    earliest = {value: np.full(len(rows[0]), len(group)) for value in (1, -1)}
    first: dict[str, int] = {}
    for i, (place, row) in enumerate(zip(group, rows, strict=True)):
        clash = min(
            int(earliest[-value][row == value].min(initial=len(group))) for value in (1, -1)
        )
        for value, at in earliest.items():
            at[(row == value) & (at == len(group))] = i
        same = first.setdefault(place.split, i)
        if clash < len(group):
            yield _contradiction(tables, place, row, group[clash], rows[clash])
        elif same < i:
            kind = "repeated" if (row == rows[same]).all() else "different"
            text = f"{_row(tables, place)} is the same picture as {_other(tables, group[same])}"
            if kind == "different":
                text += f", which has {_positives(tables, group[same])}"
                text += f"; here it has {_positives(tables, place)}"
            yield Problem(kind, text, *place)


def _contradiction(
    tables: dict[str, LabelTable], place: Place, row: Labels, other: Place, other_row: Labels
) -> Problem:
    classes = tables[place.split].classes
    clash = row * other_row == -1
    here = [classes[i] for i in (clash & (row == 1)).nonzero()[0]]
    there = [classes[i] for i in (clash & (other_row == 1)).nonzero()[0]]
    labels = [f"{_names(here)} positive here and negative there"] if here else []
    labels += [f"{_names(there)} negative here and positive there"] if there else []
    same = f"{_row(tables, place)} is the same picture as {_other(tables, other)}"
    return Problem("contradiction", f"{same}, but {', '.join(labels)}", *place)


def _row(tables: dict[str, LabelTable], place: Place) -> str:
    table = tables[place.split]
    return f"{table.where(place.row)}{table.items[place.row]!r}"


def _other(tables: dict[str, LabelTable], place: Place) -> str:
    table = tables[place.split]
    at = f", {table.places.short(place.row)}" if table.places else ""
    return f"{table.items[place.row]!r} ({place.split}{at})"


def _positives(tables: dict[str, LabelTable], place: Place) -> str:
    table = tables[place.split]
    names = [table.classes[i] for i in (table.rows([place.row])[0] == 1).nonzero()[0]]
    return _names(names) if names else "no positive"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(map(repr, names[:MAX_NAMES])) + more
