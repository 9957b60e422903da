"""Checks of labels: rare classes, suspicious names, rows without a positive."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import reduce

import numpy as np
import numpy.typing as npt

from spml.data.check.problems import Problem
from spml.data.experiment import train_list
from spml.data.names import joined_names, near_duplicates, separated_names, written_lists
from spml.data.observation import draw
from spml.data.readers.builder import Kind
from spml.data.table import SPLITS, LabelTable, SparseLabels, concatenate
from spml.errors import DataError

Counts = npt.NDArray[np.int64]


def label_problems(
    tables: dict[str, LabelTable], min_positives: int, *, complete: bool
) -> list[Problem]:
    """Return the problems of the labels alone."""
    problems = [*untrainable(tables, complete=complete), *_rare(tables, min_positives)]
    for name, count, other, other_count in near_duplicates(joined(tables)):
        alike = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)
        shown = ascii if alike else repr  # the codes distinguish names that look the same
        text = f"{shown(name)} ({count:,}) and {shown(other)} ({other_count:,})"
        problems.append(Problem("near_names", text))
    classes = next(iter(tables.values())).classes
    several = {name: f"contains {sign!r}" for name, sign in separated_names(classes).items()}
    several |= {
        name: f"{' and '.join(map(repr, parts))} are classes too"
        for name, parts in joined_names(classes)
    }
    for name, what in (several | written_lists(classes)).items():
        problems.append(Problem("joined_names", f"{name!r}: {what}"))
    for part in SPLITS:
        problems += _unlabelled(part, tables[part]) if part in tables else []
    return problems


def _unlabelled(part: str, table: LabelTable) -> Iterator[Problem]:
    for row in np.flatnonzero(positives_per_row(table.sparse) == 0).tolist():
        yield Problem("unlabelled", f"{table.where(row)}{table.items[row]!r}", part, row)


def is_complete(tables: dict[str, LabelTable], labels: Kind | None) -> bool:
    """Whether an absent label is negative; without `labels`, by the fill value."""
    if labels is not None:
        return labels == "complete"
    return next(iter(tables.values())).sparse.fill == -1


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
    ends = np.concatenate([[0], np.cumsum(labels.values == 1)])[labels.indptr]
    return np.diff(ends)


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
