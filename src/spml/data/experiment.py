"""`load`: data as training takes them, with the single positives drawn and the validation rows set aside."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from spml.data.builder import Kind
from spml.data.files import default_labels, is_named, read, version
from spml.data.observe import SEED, Rows, draw, split
from spml.data.table import LabelTable, concatenate
from spml.errors import DataError

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

    @cached_property
    def sha256(self) -> str:
        """Of the observed positives in C order, one byte each."""
        digest = hashlib.sha256()
        step = max(1, CHUNK_BYTES // len(self.classes))
        for start in range(0, len(self.observed), step):
            rows = self.observed.rows(np.arange(start, min(start + step, len(self.observed))))
            digest.update((rows == 1).tobytes())
        return digest.hexdigest()


def load(
    source: str | Path,
    root: str | Path | None = None,
    labels: Kind | None = None,
    observe_seed: int = SEED,
    split_seed: int = SEED,
    val_fraction: float = 0.2,
    classes: str | Path | Sequence[str] | None = None,
) -> Experiment:
    """The experiment of a data set or file.

    Args:
        source: a data set's name or a path.
        root: folder of its files or images.
        labels: "complete" draws one positive a row and keeps the rest for evaluation, "observed" takes what is given.
        observe_seed: of the single positives.
        split_seed: of the validation rows, where the data bring none.
        val_fraction: share of the train list that becomes validation, where the data bring none.
        classes: class names in order, or a file with one a line.
    """
    kind = labels or default_labels(source)
    tables = read(source, root, labels=kind, classes=classes)
    if "train" not in tables:
        raise DataError(f"{source}: no training rows, only {' and '.join(tables)}; mark some rows train")
    whole, train_rows, val_rows = _listed(tables, val_fraction, split_seed)
    if len(train_rows) < 2:
        raise DataError(f"{source}: {len(train_rows)} training rows; at least 2 are needed: add rows")
    if val_fraction > 0 and not len(val_rows):
        raise DataError(
            f"{source}: {len(whole)} rows give no validation row at fraction {val_fraction}; "
            "add rows, mark some val in a column 'split', or give a larger fraction"
        )
    observed = whole.with_labels(draw(whole.sparse, observe_seed)) if kind == "complete" else whole
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
    )


def _listed(tables: dict[str, LabelTable], fraction: float, seed: int) -> tuple[LabelTable, Rows, Rows]:
    """The train list with its rows to train on and to validate on; a validation split of the data's own comes last."""
    train = tables["train"]
    if "val" not in tables:
        return train, *split(len(train), fraction, seed)
    rows = np.arange(len(train) + len(tables["val"]))
    return concatenate(train, tables["val"]), rows[: len(train)], rows[len(train) :]
