"""`load`: data ready for training, with observed labels and separate validation rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spml.data.names import ClassList, class_list
from spml.data.readers.builder import Kind
from spml.data.readers.columns import Columns
from spml.data.readers.read import default_labels, is_named, read, version
from spml.data.table import LabelTable, SparseLabels, concatenate
from spml.errors import DataError, UserError

SEED = 1200  # of the shared protocol
VAL_FRACTION = 0.2
MAX_SEED = 2**32 - 1  # the largest that numpy accepts
UNLABELLED = "the validation rows have no label; label some of them, or mark labelled rows val"
CHUNK_BYTES = 2**24  # of dense labels that are hashed at once

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Experiment:
    """Data ready for training.

    Attributes:
        name: name of the data set, or the path it was read from.
        observed: labels that training may see, of the whole train list (with validation rows).
        complete: true labels of the same rows; None if unknown.
        train_rows: rows of the train list to train on, sorted.
        val_rows: rows of the train list that the epoch is chosen with, sorted.
        test: the test split, or None.
        label_kind: whether an absent label of the source is unknown or negative.
        version: version of the data set, if several circulate.
        observation: the model that drew the observed labels, with its options; "given" if the
            source's own labels are used.
        renamed: name of each class in the data -> name here; None if they are equal.
    """

    name: str
    classes: Sequence[str]
    observed: LabelTable
    complete: LabelTable | None
    train_rows: Rows
    val_rows: Rows
    test: LabelTable | None
    label_kind: Kind
    version: str = ""
    observation: dict[str, str | float] = field(default_factory=dict)
    renamed: dict[str, str] | None = None

    @cached_property
    def validates_completely(self) -> bool:
        """Whether every label of the validation rows is known."""
        if self.complete is not None:
            return True
        labels = self.observed.sparse.take(self.val_rows)
        listed = len(labels.values) == len(self.val_rows) * len(self.classes)
        return bool((listed or labels.fill == -1) and labels.values.all())

    def validation_labels(self, selection: str) -> npt.NDArray[np.int8]:
        """Return the labels that the epoch is chosen with: "complete" or "observed" ones."""
        complete = selection == "complete" and self.complete is not None
        table = self.complete if complete else self.observed
        assert table is not None
        return table.rows(self.val_rows)

    @cached_property
    def sha256(self) -> str:
        """Hash of the observed positives in C order, one byte each."""
        return digest(self.observed)


def digest(table: LabelTable) -> str:
    """Return the sha256 of a table's positives in C order, one byte each."""
    sha256 = hashlib.sha256()
    step = max(1, CHUNK_BYTES // len(table.classes))
    for start in range(0, len(table), step):
        rows = table.rows(np.arange(start, min(start + step, len(table))))
        sha256.update((rows == 1).tobytes())
    return sha256.hexdigest()


def split(n: int, fraction: float = VAL_FRACTION, seed: int = SEED) -> tuple[Rows, Rows]:
    """Return training rows and validation rows of a list of n, each sorted.

    Args:
        n: length of the list.
        fraction: share of the list for validation, in [0, 1); 0 leaves all rows to training.
        seed: of the permutation.
    """
    if not 0 <= fraction < 1:
        raise UserError(f"validation fraction {fraction} must be at least 0 and below 1")
    order = np.random.RandomState(seed).permutation(n)
    num_train = n - round(fraction * n)
    return np.sort(order[:num_train]), np.sort(order[num_train:])


def load(
    source: str | Path,
    root: str | Path | None = None,
    labels: Kind | None = None,
    observe_seed: int = SEED,
    split_seed: int = SEED,
    val_fraction: float = VAL_FRACTION,
    classes: str | Path | Sequence[str] | ClassList | None = None,
    observe: str = "uniform",
    val: str | Path | None = None,
    test: str | Path | None = None,
    columns: Columns | None = None,
) -> Experiment:
    """Load the experiment of a data set or file.

    The arguments that are not listed are those of `read`.

    Args:
        source: name of a data set, or a path.
        labels: "complete" draws one positive per row and keeps the rest for evaluation;
            "observed" uses the labels of the source.
        observe_seed: of the single positives.
        split_seed: of the validation rows, if the data have no validation split.
        val_fraction: share of the train list for validation, if the data have no such split.
        observe: observation model of complete labels, such as "uniform:positives=2"; see
            `spml.data.observation`.
    """
    for flag, seed in (("--observe-seed", observe_seed), ("--split-seed", split_seed)):
        if not 0 <= seed <= MAX_SEED:
            raise UserError(f"{flag} {seed} must be from 0 to {MAX_SEED}")
    kind = labels or default_labels(source)
    model = None  # the labels of the source are the observed ones
    if kind == "complete" or observe != "uniform":
        from spml.data.observation import Observation

        model = Observation.parse(observe)
        if kind == "observed":
            raise UserError(
                f"--observe {observe} draws from complete labels, those of {source} are observed; "
                "leave it out"
            )
    listed = class_list(classes)
    tables = read(source, root, labels=kind, classes=listed, val=val, test=test, columns=columns)
    try:
        whole, train_rows, val_rows = train_list(
            tables, val_fraction, split_seed, complete=kind == "complete"
        )
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    observed = whole
    record: dict[str, str | float] = {"model": "given"}
    if model is not None:
        drawn, record = model.draw(whole, observe_seed, source=str(source))
        observed = whole.with_labels(drawn)
    return Experiment(
        name=str(source) if is_named(source) else str(Path(source)),
        classes=whole.classes,
        observed=observed,
        complete=whole if kind == "complete" else None,
        train_rows=train_rows,
        val_rows=val_rows,
        test=tables.get("test"),
        label_kind=kind,
        version=version(source, root),
        observation=record,
        renamed=None if listed is None else listed.renamed,
    )


def unlabelled(validation: SparseLabels) -> bool:
    """Whether there are validation rows, but none with a positive to choose the epoch by."""
    return validation.shape[0] > 0 and not (validation.values == 1).any()


def train_list(
    tables: dict[str, LabelTable],
    fraction: float = VAL_FRACTION,
    seed: int = SEED,
    *,
    complete: bool,
) -> tuple[LabelTable, Rows, Rows]:
    """Return the train list, its training rows and its validation rows.

    If the data have a validation split, its rows follow those of the training split.
    """
    if "train" not in tables:
        raise DataError(f"no training rows, only {' and '.join(tables)}; mark some rows train")
    whole = tables["train"]
    if "val" in tables:
        rows = np.arange(len(whole) + len(tables["val"]))
        train_rows, val_rows = rows[: len(whole)], rows[len(whole) :]
        whole = concatenate(whole, tables["val"])
    else:
        train_rows, val_rows = split(len(whole), fraction, seed)
    if len(train_rows) < 2:
        raise DataError(f"{len(train_rows)} training rows; at least 2 are needed: add rows")
    if fraction > 0 and not len(val_rows):
        raise DataError(
            f"{len(whole)} rows give no validation row at fraction {fraction}; "
            "add rows, or mark some val in a column 'split'"
        )
    if not complete and unlabelled(whole.sparse.take(val_rows)):
        raise DataError(UNLABELLED)
    return whole, train_rows, val_rows
