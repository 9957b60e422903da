"""A run folder as a report sees it: what is there, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.runs.files import Record, number, read_arrays, read_history, read_json

Labels = npt.NDArray[np.int8]
Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Observed:
    """The labels that training saw.

    Attributes:
        train: observed labels of the training rows.
        val: of the rows held out for validation.
        val_rows: where those stand in the whole list.
        sha256: of the observed positives of the whole list.
    """

    train: Labels
    val: Labels
    val_rows: npt.NDArray[np.int64]
    sha256: str

    @property
    def num_val(self) -> int:
        """Rows held out for validation."""
        return len(self.val)


@dataclass(frozen=True, eq=False)
class Scored:
    """Logits of the chosen epoch with the labels to hold them against.

    Attributes:
        split: "test" or "validation".
        logits: items by classes.
        truth: 1, 0 (unknown) or -1 of the same shape.
    """

    split: str
    logits: Logits
    truth: Labels

    @property
    def complete(self) -> bool:
        """Whether every label is known."""
        return not bool((self.truth == 0).any())

    @cached_property
    def usable(self) -> bool:
        """Whether anything can be computed: there are items, and no score is NaN."""
        return bool(self.truth.size) and not bool(np.isnan(self.logits).any())


@dataclass(frozen=True, eq=False)
class Run:
    """One run folder.

    Attributes:
        folder: where it is.
        config: what was asked for.
        history: a record an epoch.
        result: the outcome; None while the run has not finished.
        observed: the labels of training; None where they are not stored.
        classes: names; empty where they are not stored.
        val_truth: validation labels, where stored.
        test_truth: test labels, where there are any.
    """

    folder: Path
    config: Record
    history: list[Record]
    result: Record | None
    observed: Observed | None
    classes: Sequence[str]
    val_truth: Labels | None
    test_truth: Labels | None

    def fact(self, key: str) -> Any:
        """What the result says, or else the configuration."""
        value = (self.result or {}).get(key)
        return self.config.get(key) if value is None else value

    def outcome(self, key: str) -> float | None:
        """A number of the result."""
        return number(self.result or {}, key, self.folder / "result.json")

    def curve(self, key: str) -> dict[int, float]:
        """A column of the history by epoch, finite values only."""
        path = self.folder / "history.jsonl"
        values = {record["epoch"]: number(record, key, path) for record in self.history}
        return {
            epoch: value
            for epoch, value in values.items()
            if value is not None and np.isfinite(value)
        }

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.fact("method") or "unnamed method")

    @property
    def best_epoch(self) -> int | None:
        """The chosen epoch; of an unfinished run the best so far."""
        chosen = self.outcome("best_epoch")
        if chosen is not None:
            return int(chosen)
        curve = {epoch: value for epoch, value in self.curve("val_map").items() if epoch > 0}
        return max(curve, key=lambda epoch: curve[epoch]) if curve else None

    @property
    def val_map(self) -> float | None:
        """Validation mAP of the chosen epoch, in percent."""
        recorded = self.outcome("val_map")
        if recorded is not None or self.best_epoch is None:
            return recorded
        return self.curve("val_map").get(self.best_epoch)

    @cached_property
    def scored(self) -> Scored | None:
        """Logits and labels of the test set, or else of validation, or None."""
        return self._score("test", self.test_truth, "test.npz") or self._score(
            "validation", self.val_truth, self._val_file
        )

    @cached_property
    def held_out(self) -> Scored | None:
        """Logits of the validation rows with what was observed of them, whatever else is known."""
        return self._score(
            "validation", self.observed.val if self.observed else None, self._val_file
        )

    @property
    def _val_file(self) -> str:
        return f"val-{self.best_epoch or 0:02d}.npz"

    def _score(self, split: str, truth: Labels | None, file: str) -> Scored | None:
        path = self.folder / "scores" / file
        arrays = read_arrays(path, ("logits",)) if truth is not None else None
        if arrays is None or truth is None:
            return None
        logits = arrays["logits"].astype(np.float32)
        if logits.shape != truth.shape:
            raise UserError(
                f"{path}: logits of shape {logits.shape} do not fit the labels {truth.shape} of the run"
            )
        return Scored(split, logits, truth)


def read_run(folder: Path) -> Run:
    """The run in a folder; a folder that holds none is the user's mistake."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the folder that spml train wrote")
    if not (folder / "config.json").is_file():
        raise UserError(
            f"{folder} is no run folder: it has no config.json; give the folder that spml train wrote"
        )
    ended, begun = (folder / "result.json").is_file(), (folder / "history.jsonl").is_file()
    if not ended and not begun:
        raise UserError(
            f"{folder} is no run folder: it has neither history.jsonl nor result.json; train it first"
        )
    result = read_json(folder / "result.json") if ended else None
    labels = read_arrays(folder / "labels.npz", ("classes",)) or {}
    classes = [
        str(name) for name in labels.get("classes", (result or {}).get("per_class_ap") or ())
    ]
    for key in ("val_truth", "test_truth"):
        if key in labels and labels[key].shape != (len(labels[key]), len(classes)):
            raise UserError(
                f"{folder / 'labels.npz'}: {key} {labels[key].shape} does not fit {len(classes)} classes"
            )
    return Run(
        folder=folder,
        config=read_json(folder / "config.json"),
        history=read_history(folder / "history.jsonl") if begun else [],
        result=result,
        observed=_observed(folder / "observed.npz", classes),
        classes=classes,
        val_truth=labels.get("val_truth"),
        test_truth=labels.get("test_truth"),
    )


def _observed(path: Path, classes: Sequence[str]) -> Observed | None:
    arrays = read_arrays(path, ("observed", "train_rows", "val_rows", "sha256"))
    if arrays is None:
        return None
    observed, rows, held = arrays["observed"], arrays["train_rows"], arrays["val_rows"]
    if observed.ndim != 2 or (classes and observed.shape[1] != len(classes)):
        raise UserError(
            f"{path}: labels of shape {observed.shape} do not fit {len(classes)} classes"
        )
    for name, listed in (("train_rows", rows), ("val_rows", held)):
        if listed.size and not 0 <= listed.min() <= listed.max() < len(observed):
            raise UserError(f"{path}: {name} name rows that the {len(observed)} labels do not have")
    return Observed(
        observed[rows].astype(np.int8), observed[held].astype(np.int8), held, str(arrays["sha256"])
    )
