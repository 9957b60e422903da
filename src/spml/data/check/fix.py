"""A cleaned copy of a table: without broken rows, leaks and contradictions."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from spml.data.check.problems import Findings, Place
from spml.data.table import Labels, LabelTable, SparseLabels, concatenate
from spml.errors import DataError
from spml.files import refuse_existing, replacing

Edits = dict[str, dict[int, Labels]]
NEW_FILE = "give --fix the name of a new file"
REMOVED = ("missing", "unreadable", "leak")  # kinds of problems whose rows are removed


@dataclass(frozen=True)
class Cleaned:
    """A cleaned data set."""

    tables: dict[str, LabelTable]  # a split without rows is left out
    removed: dict[str, int]  # rows, by kind of problem
    united: int  # rows that were united with an earlier copy
    unknown: int  # contradictory labels that were set to unknown
    unsettled: int  # copies that still contradict each other: complete labels cannot be unknown


def clean(tables: dict[str, LabelTable], findings: Findings, *, merge: bool = False) -> Cleaned:
    """Remove the problems of a check from the tables.

    Rows whose picture is missing or unreadable are removed. Of a picture in several splits, only
    the rows in the last of train, val and test are kept. Contradictory labels of copies become
    unknown. Rows that name the same file in different ways become one, as they would when the copy
    is read.

    Args:
        tables: the checked tables.
        findings: result of the check.
        merge: unite the remaining copies into one row with the known labels of all.
    """
    out: dict[Place, str] = {
        Place(one.split, one.row): one.kind
        for one in findings.problems
        if one.kind in REMOVED and one.split is not None and one.row is not None
    }
    # Invalid records are not in the tables.
    unread = [one.kind for one in findings.problems if one.kind == "record"]
    removed = Counter([*unread, *out.values()])
    edits: Edits = defaultdict(dict)
    united = unknown = unsettled = 0
    for group in findings.copies:
        rest = [place for place in group if place not in out]
        if len(rest) < 2:
            continue
        table = tables[rest[0].split]
        rows = table.rows([place.row for place in rest])
        clash = (rows == 1).any(axis=0) & (rows == -1).any(axis=0)
        parts = [list(range(len(rest)))] if merge else _same_file(table, rest)
        labels = [np.where((rows[p] == 1).any(axis=0), 1, rows[p].min(axis=0)) for p in parts]
        if table.sparse.fill == 0:
            labels = [np.where(clash, 0, one) for one in labels]
            unknown += int(clash.sum())
        else:
            unsettled += any((one != labels[0]).any() for one in labels)
        for part, known in zip(parts, labels, strict=True):
            united += len(part) - 1
            out.update({rest[i]: "united" for i in part[1:]})
            if (known != rows[part[0]]).any():
                edits[rest[0].split][rest[part[0]].row] = known
    return Cleaned(_without(tables, out, edits), dict(removed), united, unknown, unsettled)


def _same_file(table: LabelTable, places: list[Place]) -> list[list[int]]:
    """Group places that name the same file in different ways, such as a.jpg and ./a.jpg."""
    parts: dict[Path, list[int]] = defaultdict(list)
    for i, place in enumerate(places):
        parts[table.file(place.row).absolute()].append(i)
    return list(parts.values())


def _without(
    tables: dict[str, LabelTable], out: dict[Place, str], edits: Edits
) -> dict[str, LabelTable]:
    """Return the tables without some rows and with other labels in some."""
    cleaned = {}
    for split, table in tables.items():
        order, keep = np.arange(len(table)), np.ones(len(table), bool)
        keep[[place.row for place in out if place.split == split]] = False
        if split in edits:
            rows, labels = list(edits[split]), np.stack(list(edits[split].values()))
            changed = SparseLabels.from_dense(labels, table.sparse.fill)
            order[rows] = len(table) + np.arange(len(rows))
            table = concatenate(table, table.take(rows).with_labels(changed))
        if keep.any():
            cleaned[split] = table.take(order[keep])
    return cleaned


def write_table(
    tables: dict[str, LabelTable], out: Path, names: Sequence[str] | None = None
) -> None:
    """Write tables of files as a new CSV in long form, with paths relative to its folder if inside.

    `names` are the class names in the file; None uses those of the tables.
    """
    if not any((table.sparse.values == 1).any() for table in tables.values()):
        raise DataError(f"{out}: not written, as no row with a label is left")
    folder = out.absolute().parent
    refuse_existing(out, NEW_FILE)
    with replacing(out) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("image", "label", "negative", "split"))
        for split, table in tables.items():
            classes = [_cell(name, "class", "|") for name in names or table.classes]
            labels = table.sparse
            for row, (start, end) in enumerate(pairwise(labels.indptr.tolist())):
                path = table.file(row).absolute()
                path = path.relative_to(folder) if path.is_relative_to(folder) else path
                columns, values = labels.indices[start:end], labels.values[start:end]
                cells = (
                    "|".join(classes[i] for i in columns[values == wanted]) for wanted in (1, -1)
                )
                writer.writerow((_cell(str(path), "path"), *cells, split))


def _cell(text: str, what: str, forbidden: str = "") -> str:
    """Return the text; refuse one that would be read back differently."""
    if text != text.strip() or (forbidden and forbidden in text):
        reason = (
            "begins or ends with a space" if text != text.strip() else f"contains {forbidden!r}"
        )
        raise DataError(f"{what} {text!r} cannot be written to a CSV file: it {reason}; rename it")
    return text
