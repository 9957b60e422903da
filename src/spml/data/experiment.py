"""`load`: data as training takes them, with the single positives drawn and the validation rows set aside."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data.names import ClassList, class_list
from spml.data.observation import Observation
from spml.data.observe import SEED, Rows, split
from spml.data.readers.builder import Kind
from spml.data.readers.read import default_labels, is_named, read, version
from spml.data.table import LabelTable, SparseLabels, concatenate
from spml.errors import DataError, UserError

LAST_SEED = 2**32 - 1  # that numpy takes
UNLABELLED = "the validation rows have no label; label some of them, or mark labelled rows val"
CHUNK_BYTES = 2**24  # of dense labels hashed together


@dataclass(frozen=True, eq=False)
class Experiment:
    """Data ready for training.

    Attributes:
        name: the data set's name, or the path it was read from.
        classes: one name per column.
        observed: what training may see, over the whole train list (validation rows included).
        complete: the true labels of the same rows; None when they are not known.
        train_rows: rows of the train list to train on, sorted.
        val_rows: rows of the train list to choose the epoch with, sorted.
        test: the test split, or None.
        label_kind: how the source's labels were taken.
        version: which version of the data set it is, where several circulate.
        observation: the model that gave the observed labels, with its parameters; "given" where none was needed.
        renamed: what the classes are called in the data and what here; None where that is the same.
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
    observation: dict[str, Any] = field(default_factory=dict)
    renamed: dict[str, str] | None = None

    @cached_property
    def validates_completely(self) -> bool:
        """Whether every label of the validation rows is known."""
        if self.complete is not None:
            return True
        given = self.observed.sparse.take(self.val_rows)
        listed = len(given.values) == len(self.val_rows) * len(self.classes)
        return bool((listed or given.fill == -1) and given.values.all())

    def validation_labels(self, selection: str) -> npt.NDArray[np.int8]:
        """What the epoch is chosen with: complete labels of the validation rows, or the observed ones alone."""
        table = (
            self.complete
            if selection == "complete" and self.complete is not None
            else self.observed
        )
        return table.rows(self.val_rows)

    @cached_property
    def sha256(self) -> str:
        """Of the observed positives in C order, one byte each."""
        return digest(self.observed)


def digest(table: LabelTable) -> str:
    """sha256 of a table's positives in C order, one byte each."""
    found = hashlib.sha256()
    step = max(1, CHUNK_BYTES // len(table.classes))
    for start in range(0, len(table), step):
        rows = table.rows(np.arange(start, min(start + step, len(table))))
        found.update((rows == 1).tobytes())
    return found.hexdigest()


def load(
    source: str | Path,
    root: str | Path | None = None,
    labels: Kind | None = None,
    observe_seed: int = SEED,
    split_seed: int = SEED,
    val_fraction: float = 0.2,
    classes: str | Path | Sequence[str] | ClassList | None = None,
    observe: str = "uniform",
    val: str | Path | None = None,
    test: str | Path | None = None,
) -> Experiment:
    """The experiment of a data set or file.

    Args:
        source: a data set's name or a path.
        root: folder of its files or images.
        labels: "complete" draws one positive a row and keeps the rest for evaluation, "observed" takes what is given.
        observe_seed: of the single positives.
        split_seed: of the validation rows, where the data bring none.
        val_fraction: share of the train list that becomes validation, where the data bring none.
        classes: class names in order, also as text joined by commas, or a file with one a line.
        observe: the observation model of complete labels, such as "uniform:positives=2"; see `spml.data.observation`.
        val: file of the validation rows, for users' files.
        test: file of the test rows.
    """
    for flag, seed in (("--observe-seed", observe_seed), ("--split-seed", split_seed)):
        if not 0 <= seed <= LAST_SEED:
            raise UserError(f"{flag} {seed} must be from 0 to {LAST_SEED}")
    model = Observation.parse(observe)
    kind = labels or default_labels(source)
    if kind == "observed" and observe != "uniform":
        raise UserError(
            f"--observe {observe} draws from complete labels, those of {source} are observed; leave it out"
        )
    listed = class_list(classes)
    tables = read(source, root, labels=kind, classes=listed, val=val, test=test)
    whole, train_rows, val_rows = _listed(str(source), tables, val_fraction, split_seed)
    if kind == "observed" and unlabelled(whole.sparse.take(val_rows)):
        raise DataError(f"{source if val is None else val}: {UNLABELLED}")
    observed, about = whole, {"model": "given"}
    if kind == "complete":
        drawn, about = model.draw(whole, observe_seed, source=str(source), reader=_observed_tables)
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
        observation=about,
        renamed=None if listed is None else listed.renamed,
    )


def unlabelled(validation: SparseLabels) -> bool:
    """Whether there are validation rows, but none of them has a positive to choose the epoch with."""
    return validation.shape[0] > 0 and not (validation.values == 1).any()


def _observed_tables(path: str) -> dict[str, LabelTable]:
    return read(path, labels="observed")


def _listed(
    source: str, tables: dict[str, LabelTable], fraction: float, seed: int
) -> tuple[LabelTable, Rows, Rows]:
    """The train list with its rows to train on and to validate on; a validation split of the data's own comes last."""
    if "train" not in tables:
        raise DataError(
            f"{source}: no training rows, only {' and '.join(tables)}; mark some rows train"
        )
    whole = tables["train"]
    if "val" in tables:
        rows = np.arange(len(whole) + len(tables["val"]))
        train_rows, val_rows = rows[: len(whole)], rows[len(whole) :]
        whole = concatenate(whole, tables["val"])
    else:
        train_rows, val_rows = split(len(whole), fraction, seed)
    if len(train_rows) < 2:
        raise DataError(
            f"{source}: {len(train_rows)} training rows; at least 2 are needed: add rows"
        )
    if fraction > 0 and not len(val_rows):
        raise DataError(
            f"{source}: {len(whole)} rows give no validation row at fraction {fraction}; "
            "add rows, or mark some val in a column 'split'"
        )
    return whole, train_rows, val_rows
