"""`check`: every problem of a data set at once, found by reading it as training would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from spml.data.check.files import Advance, Inspection, inspect_arrays, inspect_files
from spml.data.check.labels import is_complete, label_problems
from spml.data.check.problems import Findings, Place, Problem, problem
from spml.data.readers.builder import Kind
from spml.data.table import Labels, LabelTable
from spml.errors import DataError

NAMED = 5  # classes that one message lists


def check(
    tables: dict[str, LabelTable],
    *,
    unread: Iterable[DataError] = (),
    labels: Kind | None = None,
    pictures: bool = True,
    size: int | None = None,
    min_positives: int = 5,
    threads: int | None = None,
    advance: Advance | None = None,
) -> Findings:
    """What is wrong with the tables of a data set, and which of their pictures are the same.

    Features are taken as they are; pictures in arrays are compared, and files are looked for, compared and decoded.

    Args:
        tables: by split, as `read` gives them.
        unread: the records that `read` could not take, as it told them.
        labels: how `read` took them; arrays of mostly known negatives do not show it.
        pictures: decode every picture file; without, files are only looked for and compared.
        size: resize what is decoded, as training would.
        min_positives: a class with fewer positives in train is said.
        threads: that read files; as many as there are cores when None.
        advance: told of the progress: what is done, how many of how many.
    """
    files = {split: table for split, table in tables.items() if table.x is None}
    found = inspect_files(files, decoded=pictures, size=size, threads=threads, advance=advance)
    found = Inspection(found.broken, found.copies + inspect_arrays(tables))
    problems = [*unread_problems(unread), *found.broken.values()]
    for group in found.copies:
        problems += _leaks(tables, group)
        problems += _copies(tables, group)
    problems += label_problems(tables, min_positives, complete=is_complete(tables, labels))
    return Findings(problems, found.copies)


def unread_problems(unread: Iterable[DataError]) -> list[Problem]:
    """The problems that `read` told."""
    return [problem("record", str(error)) for error in unread]


def _leaks(tables: dict[str, LabelTable], group: tuple[Place, ...]) -> Iterator[Problem]:
    """The copies that are not in the last split of the group; of train, val and test, test is the one to keep."""
    kept = group[-1]
    for place in group:
        if place.split != kept.split:
            text = f"{_row(tables, place)} in {place.split} is the same picture as {_other(tables, kept)}"
            yield problem("leak", text, *place)


def _copies(tables: dict[str, LabelTable], group: tuple[Place, ...]) -> Iterator[Problem]:
    """Each copy against those before it: contradictory, or in the same split with other or the same labels."""
    rows = [tables[place.split].rows([place.row])[0] for place in group]
    earliest = {
        value: np.full(len(rows[0]), len(group)) for value in (1, -1)
    }  # copy that says so of each class
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
                text += f", which has {_positives(tables, group[same])}; here it has {_positives(tables, place)}"
            yield problem(kind, text, *place)


def _contradiction(
    tables: dict[str, LabelTable], place: Place, row: Labels, other: Place, other_row: Labels
) -> Problem:
    classes = tables[place.split].classes
    here, there = (
        [classes[i] for i in (product & (mine == 1)).nonzero()[0]]
        for product, mine in ((row * other_row == -1, row), (row * other_row == -1, other_row))
    )
    said = [f"{_names(here)} positive here and negative there"] if here else []
    said += [f"{_names(there)} negative here and positive there"] if there else []
    text = f"{_row(tables, place)} is the same picture as {_other(tables, other)}, but {', '.join(said)}"
    return problem("contradiction", text, *place)


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
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + more
