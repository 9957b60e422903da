"""Observation models: which of a row's true labels training gets to see.

A model is written `NAME` or `NAME:option=value,...`:

- `uniform`: the shared protocol's draw, each positive of a row alike; `positives` (1), `negatives` (0).
- `frequency`: in proportion to how often a class is positive in the train list, to the power `gamma` (1): annotators
  name what is common. A negative gamma favours the rare. `positives` (1).
- `size`: in proportion to the area of the class's boxes in the picture, to the power `gamma` (1): annotators name what
  is large. For voc and coco, which have boxes. `positives` (1).
- `file:PATH`: as a table of the same items says.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spml.data.observe import SEED, draw, draw_weighted
from spml.data.table import LabelTable, SparseLabels, concatenate
from spml.errors import DataError, UserError

OPTIONS: dict[str, dict[str, float]] = {  # with their defaults; whole numbers stay whole
    "uniform": {"positives": 1, "negatives": 0},
    "frequency": {"gamma": 1.0, "positives": 1},
    "size": {"gamma": 1.0, "positives": 1},
}
FILE = "file:"
Reader = Callable[[str], dict[str, LabelTable]]


@dataclass(frozen=True)
class Observation:
    """An observation model.

    Attributes:
        model: its name.
        options: its parameters, all of them.
    """

    model: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Observation:
        """The model that a text such as "frequency:gamma=0.5,positives=2" describes."""
        if text.startswith(FILE):
            if not text[len(FILE) :]:
                raise UserError("file: names no table; write file:PATH")
            return cls("file", {"path": text[len(FILE) :]})
        name, _, given = text.partition(":")
        if name not in OPTIONS:
            raise UserError(
                f"{name!r} is not an observation model; the models are {', '.join(OPTIONS)} and file:PATH"
            )
        options = dict(OPTIONS[name])
        for part in filter(None, given.split(",")):
            key, _, value = part.partition("=")
            if key not in options:
                raise UserError(
                    f"{part!r} is not an option of {name}; those are {', '.join(options)}"
                )
            options[key] = _number(part, value, type(options[key]))
        return cls(name, options)

    def draw(
        self, table: LabelTable, seed: int = SEED, *, source: str = "", reader: Reader | None = None
    ) -> tuple[SparseLabels, dict[str, Any]]:
        """The observed labels of a completely labelled table, and what is to be remembered of how they came about.

        Args:
            table: the train list.
            seed: of the draw.
            source: the data set's name, for `size`.
            reader: of the table that `file` names.
        """
        about: dict[str, Any] = {"model": self.model, **self.options}
        if self.model == "file":
            assert reader is not None
            observed, contradicting = _from_file(table, self.options["path"], reader)
            return observed, about | {"contradicting": contradicting}
        if self.model == "uniform":
            return draw(table.sparse, seed, **self.options), about | {"seed": seed}
        known = table.sparse.positives(-1)
        if self.model == "frequency":
            weights = table.sparse.counts(1)[known.indices].astype(np.float64)
        else:
            from spml.data.readers.object_sizes import areas

            weights = areas(source, table)
            about["without_area"] = int((weights <= 0).sum())
        log_weights = np.full(len(weights), -np.inf)
        log_weights[weights > 0] = self.options["gamma"] * np.log(weights[weights > 0])
        return draw_weighted(table.sparse, log_weights, seed, self.options["positives"]), about | {
            "seed": seed
        }


def _number(part: str, text: str, kind: type) -> float:
    try:
        value: float = kind(text)
    except ValueError:
        raise UserError(f"{part!r}: give a {'whole ' if kind is int else ''}number") from None
    if not math.isfinite(value):
        raise UserError(f"{part!r}: give a finite number")
    if kind is int and value < 0:
        raise UserError(f"{part!r}: must not be below 0")
    return value


def _from_file(table: LabelTable, path: str, reader: Reader) -> tuple[SparseLabels, int]:
    """The labels of the same items in another table, and how many of them the complete labels contradict."""
    tables = reader(path)
    given = (
        concatenate(tables["train"], tables["val"])
        if {"train", "val"} <= set(tables)
        else tables.get("train")
    )
    if given is None:
        raise DataError(f"{path}: no training rows; the observed labels are taken from those")
    if unknown := [name for name in given.classes if name not in set(table.classes)]:
        raise DataError(
            f"{path}: class {unknown[0]!r} is not one of the data's {len(table.classes)} classes"
        )
    for where, items in (("the data", table.items), (path, given.items)):
        if twice := next((item for item, count in Counter(items).items() if count > 1), None):
            raise DataError(
                f"{where}: item {twice!r} stands twice; labels are found by it, so give each row its own"
            )
    rows = {item: i for i, item in enumerate(given.items)}
    if absent := [item for item in table.items if item not in rows]:
        raise DataError(
            f"{path}: {len(absent):,} of {len(table):,} items are not in it, first {absent[0]!r}"
        )
    if len(rows) != len(table):
        listed = set(table.items)
        extra = [item for item in rows if item not in listed]
        raise DataError(
            f"{path}: {len(extra):,} items that are not in the train list, first {extra[0]!r}; "
            "leave them out, or mark those of the test split in a column split"
        )
    return _aligned(table, given, [rows[item] for item in table.items], path)


def _aligned(
    table: LabelTable, given: LabelTable, rows: list[int], path: str
) -> tuple[SparseLabels, int]:
    """The given rows with their columns in the order of the table's classes."""
    if given.sparse.fill != 0:
        raise DataError(
            f"{path}: most labels are known negatives; give a table in which most are unknown (0)"
        )
    column = {name: i for i, name in enumerate(table.classes)}
    labels = given.sparse.take(rows)
    row = labels.entry_rows()
    moved = np.array([column[name] for name in given.classes])[labels.indices]
    keep = np.lexsort((moved, row))
    keep = keep[labels.values[keep] != 0]
    row, moved, values = row[keep], moved[keep], labels.values[keep]
    observed = SparseLabels.from_entries(row, moved, values, table.sparse.shape, fill=0)
    return observed, int((lookup(table.sparse, row, moved) != values).sum())


def lookup(labels: SparseLabels, rows: Any, columns: Any) -> np.ndarray[Any, np.dtype[np.int8]]:
    """The labels of single entries, none of the table made dense."""
    keys = labels.entry_rows() * labels.num_classes + labels.indices
    wanted = np.asarray(rows, np.int64) * labels.num_classes + np.asarray(columns, np.int64)
    out = np.full(len(wanted), labels.fill, np.int8)
    if len(keys):
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found = keys[at] == wanted
        out[found] = labels.values[at[found]]
    return out
