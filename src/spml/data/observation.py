"""Observed labels drawn from complete ones: the shared protocol's draw, and observation models.

An observation model decides which of a row's true labels training sees. It is written `NAME` or
`NAME:option=value,...`:

- `uniform`: the shared protocol's draw; every positive of a row is equally likely. Options
  `positives` (1) and `negatives` (0).
- `frequency`: in proportion to the class's frequency in the train list, to the power `gamma` (1):
  annotators name what is common. A negative gamma favours rare classes. Option `positives` (1).
- `size`: in proportion to the area of the class's boxes in the picture, to the power `gamma` (1):
  annotators name what is large. For benchmarks that have boxes. Option `positives` (1).
- `file:PATH`: the labels of a table of the same items.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pkgutil import resolve_name
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data.benchmarks import BENCHMARKS
from spml.data.experiment import SEED
from spml.data.names import ClassList
from spml.data.readers.read import read
from spml.data.table import Labels, LabelTable, SparseLabels, concatenate
from spml.errors import DataError, UserError

OPTIONS = {
    "uniform": ("positives", "negatives"),
    "frequency": ("gamma", "positives"),
    "size": ("gamma", "positives"),
    "file": ("path",),
}
FILE = "file:"

Record = dict[str, str | float]  # a model with its options, as config.json stores it


def observe(labels: Any, seed: int = SEED, positives: int = 1, negatives: int = 0) -> Labels:
    """Draw observed labels from complete ones: int8 (items, classes), 0 for unknown.

    Args:
        labels: complete labels in {1, -1}, a numpy array or torch tensor (items, classes).
        seed: of the draw.
        positives: number of positives per row that stay known; all of them if a row has fewer.
        negatives: number of negatives per row that stay known.
    """
    array = labels.detach().cpu().numpy() if hasattr(labels, "detach") else labels
    drawn = draw(SparseLabels.from_dense(array), seed, positives, negatives)
    return drawn.rows(np.arange(drawn.shape[0]))


def draw(
    labels: SparseLabels, seed: int = SEED, positives: int = 1, negatives: int = 0
) -> SparseLabels:
    """Draw observed labels as `observe` does, from sparse to sparse labels."""
    known = _complete_positives(labels, positives, negatives)
    shuffled = known.indices.copy()
    classes = np.arange(labels.num_classes, dtype=np.int32)
    scratch = classes.copy()
    negative_classes: list[npt.NDArray[np.int32]] = []
    rng = np.random.RandomState(seed)
    for start, end in pairwise(known.indptr.tolist()):
        row = shuffled[start:end]
        rng.shuffle(row)
        # The reference shuffles the negatives even if it keeps none. Without that shuffle every
        # later draw would move.
        others = np.delete(classes, row) if negatives else scratch[: len(scratch) - len(row)]
        rng.shuffle(others)
        if negatives:
            negative_classes.append(others[:negatives])
    return _observed(known, shuffled, positives, negative_classes)


def draw_weighted(
    labels: SparseLabels, log_weights: npt.NDArray[np.float64], seed: int = SEED, positives: int = 1
) -> SparseLabels:
    """Draw positives in proportion to weights, without replacement, row by row.

    The first draw of a row is positive i with probability w_i / sum w: the largest of log w_i plus
    Gumbel noise. A positive of weight 0 is drawn only if its row has too few others. The weights
    are in the order of `labels.positives(-1)`.
    """
    known = _complete_positives(labels, positives)
    uniform = np.random.RandomState(seed).random_sample(len(known.indices))
    exponential = np.maximum(-np.log1p(-uniform), np.finfo(np.float64).tiny)
    keys = log_weights - np.log(exponential)
    # The noise alone orders positives of weight 0, whose keys are all -inf.
    order = np.lexsort((uniform, -keys, known.entry_rows()))
    return _observed(known, known.indices[order], positives, [])


def _complete_positives(labels: SparseLabels, positives: int, negatives: int = 0) -> SparseLabels:
    """Return the positives of complete labels; refuse labels or numbers that allow no draw."""
    if positives < 0 or negatives < 0:
        raise UserError(f"positives={positives} and negatives={negatives} must not be below 0")
    if labels.counts(0).any():
        raise DataError(
            "labels hold 0 (unknown); the draw takes complete labels: 1 or -1 in every entry"
        )
    return labels.positives(fill=-1)


def _observed(
    known: SparseLabels,
    shuffled: npt.NDArray[np.int32],
    positives: int,
    negatives: list[npt.NDArray[np.int32]],
) -> SparseLabels:
    """Keep the first positives of each shuffled row, and the negatives of each row."""
    row = known.entry_rows()
    keep = np.arange(len(row)) - known.indptr[row] < positives
    rows, columns, values = row[keep], shuffled[keep], np.ones(int(keep.sum()), np.int8)
    if negatives:
        extra = np.concatenate(negatives)
        lengths = [len(classes) for classes in negatives]
        rows = np.concatenate([rows, np.repeat(np.arange(len(negatives)), lengths)])
        columns = np.concatenate([columns, extra])
        values = np.concatenate([values, np.full(len(extra), -1, np.int8)])
    order = np.lexsort((columns, rows))
    return SparseLabels.from_entries(
        rows[order], columns[order], values[order], known.shape, fill=0
    )


@dataclass(frozen=True)
class Observation:
    """An observation model; OPTIONS lists the options that each model has."""

    model: str
    positives: int = 1
    negatives: int = 0
    gamma: float = 1.0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Observation:
        """Parse text such as "frequency:gamma=0.5,positives=2"."""
        if text.startswith(FILE):
            path = text.removeprefix(FILE)
            if not path:
                raise UserError("file: names no table; write file:PATH")
            return cls("file", path=path)
        name, _, settings = text.partition(":")
        models = [model for model in OPTIONS if model != "file"]
        if name not in models:
            raise UserError(
                f"{name!r} is not an observation model; "
                f"the models are {', '.join(models)} and file:PATH"
            )
        numbers: dict[str, Any] = {}
        for part in filter(None, settings.split(",")):
            key, _, value = part.partition("=")
            if key not in OPTIONS[name]:
                options = ", ".join(OPTIONS[name])
                raise UserError(f"{part!r} is not an option of {name}; the options are {options}")
            numbers[key] = _number(part, value, float if key == "gamma" else int)
        return cls(name, **numbers)

    def draw(
        self, table: LabelTable, seed: int = SEED, *, source: str = ""
    ) -> tuple[SparseLabels, Record]:
        """Return the observed labels of a completely labelled train list, and a record of the draw.

        `source` is the name of the data set, for `size`.
        """
        record: Record = {"model": self.model}
        record |= {name: getattr(self, name) for name in OPTIONS[self.model]}
        if self.model == "file":
            observed, contradicting = _from_file(table, self.path)
            return observed, record | {"contradicting": contradicting}
        if self.model == "uniform":
            observed = draw(table.sparse, seed, self.positives, self.negatives)
            return observed, record | {"seed": seed}
        if self.model == "size":
            weights = areas(source, table)
            record["without_area"] = int((weights <= 0).sum())
        else:
            classes = table.sparse.positives(-1).indices
            weights = table.sparse.counts(1)[classes].astype(np.float64)
        log_weights = np.full(len(weights), -np.inf)
        log_weights[weights > 0] = self.gamma * np.log(weights[weights > 0])
        observed = draw_weighted(table.sparse, log_weights, seed, self.positives)
        return observed, record | {"seed": seed}


def areas(source: str, table: LabelTable) -> npt.NDArray[np.float64]:
    """Return the summed box area of each positive in pixels, in the order of `positives(-1)`."""
    with_boxes = [name for name, entry in BENCHMARKS.items() if entry.boxes]
    if source not in with_boxes:
        raise UserError(
            f"{source} has no boxes, so sizes are not known; "
            f"--observe size is for {' and '.join(with_boxes)}"
        )
    assert table.root is not None
    known = table.sparse.positives(-1)
    pairs = zip(known.entry_rows().tolist(), known.indices.tolist(), strict=True)
    at = {pair: i for i, pair in enumerate(pairs)}
    out = np.zeros(len(at))
    for row, column, area in resolve_name(BENCHMARKS[source].boxes)(table, table.root):
        if (row, column) in at:  # other boxes belong to no positive label
            out[at[row, column]] += area
    return out


def _number(part: str, text: str, kind: type[int] | type[float]) -> float:
    try:
        value = kind(text)
    except ValueError:
        raise UserError(f"{part!r}: give a {'whole ' if kind is int else ''}number") from None
    if not math.isfinite(value):
        raise UserError(f"{part!r}: give a finite number")
    if kind is int and value < 0:
        raise UserError(f"{part!r}: must not be below 0")
    return value


def _from_file(table: LabelTable, path: str) -> tuple[SparseLabels, int]:
    """Return the labels of the same items in another table, and how many contradict `table`."""
    classes = ClassList({name: name for name in table.classes}, "that of the data")
    tables = read(path, labels="observed", classes=classes)
    other = tables.get("train")
    if other is None:
        raise DataError(f"{path}: no training rows; the observed labels are taken from those")
    if "val" in tables:
        other = concatenate(other, tables["val"])
    for where, items in (("the data", table.items), (path, other.items)):
        if twice := next((item for item, count in Counter(items).items() if count > 1), None):
            raise DataError(
                f"{where}: item {twice!r} appears twice; "
                "labels are matched by item, so give each row its own"
            )
    rows = {item: i for i, item in enumerate(other.items)}
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
    labels = other.sparse
    if labels.fill != 0:  # arrays with many known negatives have the other fill value
        labels = SparseLabels.from_dense(other.labels, 0)
    observed = labels.take([rows[item] for item in table.items])
    known = table.sparse.lookup(observed.entry_rows(), observed.indices)
    return observed, int((known != observed.values).sum())
