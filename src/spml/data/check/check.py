"""`check`: report every problem of a data set at once."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from functools import reduce

import numpy as np
import numpy.typing as npt

from spml.data.check.files import Advance, inspect_arrays, inspect_files
from spml.data.check.problems import Findings, Place, Problem
from spml.data.experiment import train_list
from spml.data.names import doubtful_names, near_duplicates
from spml.data.observation import draw
from spml.data.readers.builder import Kind
from spml.data.table import SPLITS, Labels, LabelTable, SparseLabels, concatenate
from spml.errors import DataError

Counts = npt.NDArray[np.int64]
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
    """Return the problems of tables by split, and which of their pictures are the same.

    Pictures in arrays are compared, and files also located and, with `pictures`, decoded at `size`.
    `unread` are the invalid records that `read` reported, `labels` the kind that it used, as the
    fill value of arrays does not show it.
    """
    files = {split: table for split, table in tables.items() if table.x is None}
    broken, copies = inspect_files(files, decoded=pictures, size=size, advance=advance)
    copies += inspect_arrays(tables)
    problems = [*unread_problems(unread), *broken]
    for group in copies:
        problems += _leaks(tables, group)
        problems += _copies(tables, group)
    if labels is None:
        labels = "complete" if next(iter(tables.values())).sparse.fill == -1 else "observed"
    problems += untrainable(tables, complete=labels == "complete")
    problems += _rare(tables, min_positives)
    problems += _names_problems(tables)
    for part in SPLITS:
        problems += _unlabelled(part, tables[part]) if part in tables else []
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
    rows = np.concatenate([tables[place.split].rows([place.row]) for place in group])
    first: dict[str, int] = {}
    for i, (place, row) in enumerate(zip(group, rows, strict=True)):
        clashes = (rows[:i] * row == -1).any(axis=1)
        same = first.setdefault(place.split, i)
        if clashes.any():
            earliest = int(clashes.argmax())
            yield _contradiction(tables, place, row, group[earliest], rows[earliest])
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


def _names_problems(tables: dict[str, LabelTable]) -> Iterator[Problem]:
    """Yield class names that are nearly equal, or that may be several names."""
    for name, count, other, other_count in near_duplicates(joined(tables)):
        alike = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)
        shown = ascii if alike else repr  # the codes distinguish names that look the same
        text = f"{shown(name)} ({count:,}) and {shown(other)} ({other_count:,})"
        yield Problem("near_names", text)
    for name, what in doubtful_names(next(iter(tables.values())).classes).items():
        yield Problem("joined_names", f"{name!r}: {what}")


def _unlabelled(part: str, table: LabelTable) -> Iterator[Problem]:
    for row in np.flatnonzero(positives_per_row(table.sparse) == 0).tolist():
        yield Problem("unlabelled", f"{table.where(row)}{table.items[row]!r}", part, row)


def untrainable(tables: dict[str, LabelTable], *, complete: bool) -> list[Problem]:
    """Return the reason for which `load` would refuse the tables, if any."""
    labels = {split: _without_items(table) for split, table in tables.items()}
    try:
        train_list(labels, complete=complete)
    except DataError as error:
        return [Problem("untrainable", str(error))]
    return []


def _without_items(table: LabelTable) -> LabelTable:
    return LabelTable(table.items, table.classes, table.sparse)


def joined(tables: dict[str, LabelTable]) -> LabelTable:
    """Join the labels of all splits into one table."""
    return reduce(concatenate, map(_without_items, tables.values()))


def positives_per_row(labels: SparseLabels) -> Counts:
    """Return the number of positives of each row."""
    return np.diff(labels.positives(0).indptr)


def positives_seen(tables: dict[str, LabelTable]) -> Counts:
    """Count the single positives of each class that are drawn from complete labels of train."""
    lists = joined({part: tables[part] for part in ("train", "val") if part in tables})
    return draw(lists.sparse).take(np.arange(len(tables["train"]))).counts(1)


def _rare(tables: dict[str, LabelTable], min_positives: int) -> Iterator[Problem]:
    """Yield each class with too few positives, once."""
    some = next(iter(tables.values()))
    counts = {
        part: tables[part].sparse.counts(1) if part in tables else np.zeros(len(some.classes))
        for part in SPLITS
    }
    for column, name in enumerate(some.classes):
        train, val, test = (int(counts[part][column]) for part in SPLITS)
        if train + val + test == 0:
            yield Problem("no_positive", repr(name))
        elif train + val == 0:
            yield Problem("test_only", f"{name!r} has {test:,} in test, none in train")
        elif train < min_positives:
            yield Problem(
                "few_positives",
                f"{name!r} has {train:,} in train; --min-positives is {min_positives}",
                "train",
            )
