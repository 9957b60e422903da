"""A run folder as every command reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from spml.errors import DAMAGED, UserError
from spml.files import Record, number, parse_object, read_arrays, read_json, read_text
from spml.model.store import BEST, CARD, INFO
from spml.runs import names
from spml.runs.contents import Contents, read_contents
from spml.runs.settings import upgrade

Split = Literal["val", "test"]
Array = npt.NDArray[Any]
Labels = npt.NDArray[np.int8]
Logits = npt.NDArray[np.float32]


def scores_name(split: Split, epoch: int) -> str:
    """Return the name of the scores of a split: of validation after an epoch, or of test."""
    return "test" if split == "test" else f"val-{epoch:02d}"


@dataclass(frozen=True, eq=False)
class Observed:
    """The labels that training saw."""

    train: Labels  # of the training rows
    val: Labels  # of the validation rows
    val_rows: npt.NDArray[np.int64]  # in the whole list
    sha256: str  # of the observed positives of the whole list

    @property
    def num_val(self) -> int:
        """Number of validation rows."""
        return len(self.val)

    @property
    def counts(self) -> list[int]:
        """Observed positives of each class in the training rows."""
        counts: list[int] = (self.train == 1).sum(axis=0).tolist()
        return counts


@dataclass(frozen=True, eq=False)
class Scored:
    """Logits of the chosen epoch and the labels to compare them with."""

    split: str
    logits: Logits
    truth: Labels

    @property
    def complete(self) -> bool:
        """Whether every label is known."""
        return not bool((self.truth == 0).any())

    @cached_property
    def usable(self) -> bool:
        """Whether there are items, and no score is NaN."""
        return bool(self.truth.size) and not bool(np.isnan(self.logits).any())


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder. Each file is read when it is first needed, checked, and kept."""

    folder: Path
    remedy: str = DAMAGED  # in errors about a damaged .npz file

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return a run that has begun, after checking all its files but the scores."""
        run = cls(Path(folder))
        for name in ("config", "result", "val_truth", "test_truth", "history", "observed"):
            getattr(run, name)
        if not run.finished and not run.has(names.HISTORY):
            raise UserError(
                f"{folder} has neither {names.HISTORY} nor {names.RESULT}; train it first"
            )
        return run

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.resolve().name

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run."""
        return self.has(names.CONFIG)

    @property
    def finished(self) -> bool:
        """Whether the run has a result."""
        return self.has(names.RESULT)

    @property
    def model(self) -> Path:
        """Folder of the chosen model."""
        return self.folder / BEST

    @property
    def model_info(self) -> Path:
        """Description of the chosen model."""
        return self.model / INFO

    @property
    def card(self) -> Path:
        """Card of the chosen model."""
        return self.model / CARD

    @property
    def report(self) -> Path:
        """HTML page about the run."""
        return self.folder / names.REPORT

    @property
    def calibration_file(self) -> Path:
        """Record of the calibration."""
        return self.folder / names.CALIBRATION

    def has(self, file: str) -> bool:
        """Whether the folder holds a file."""
        return (self.folder / file).is_file()

    def evaluation(self, split: Split) -> Path:
        """File of the metrics of a split."""
        return self.folder / names.EVALUATIONS.replace("*", split)

    def scores_file(self, split: Split, epoch: int = 0) -> Path:
        """File of the logits of a split: of validation after an epoch, or of test."""
        return self.folder / names.SCORES / f"{scores_name(split, epoch)}.npz"

    @cached_property
    def config(self) -> Record:
        """Configuration, as today's version would write it."""
        return upgrade(self._record(names.CONFIG))

    @cached_property
    def history(self) -> list[Record]:
        """A record per epoch, in order; if an epoch was written twice, the later record."""
        if not self.has(names.HISTORY):
            return []
        path = self.folder / names.HISTORY
        epochs: dict[int, Record] = {}
        for at, line in enumerate(read_text(path).splitlines(), 1):
            if not line.strip():
                continue
            where = f"{path}, line {at}"
            record = parse_object(line, where)
            epoch = record.get("epoch")
            if not isinstance(epoch, int) or isinstance(epoch, bool):
                raise UserError(f"{where}: 'epoch' must be a whole number, it is {epoch!r}")
            epochs[epoch] = record
        return [epochs[epoch] for epoch in sorted(epochs)]

    @cached_property
    def result(self) -> Record | None:
        """Result, or None while the run is not finished."""
        return self._record(names.RESULT) if self.finished else None

    def require_result(self) -> Record:
        """Return the result; UserError if the run is not finished."""
        return self._record(names.RESULT)

    @cached_property
    def classes(self) -> Sequence[str]:
        """Names of the classes; empty if the folder does not hold them."""
        stored = self._arrays(names.LABELS, ("classes",))
        if stored is not None:
            return [str(name) for name in stored["classes"]]
        return [str(name) for name in (self.result or {}).get("per_class_ap") or ()]

    @cached_property
    def val_truth(self) -> Labels | None:
        """Labels of the validation rows, if stored."""
        return self._truth("val_truth")

    @cached_property
    def test_truth(self) -> Labels | None:
        """Labels of the test rows, if there are any."""
        return self._truth("test_truth")

    @cached_property
    def observed(self) -> Observed | None:
        """Labels that training saw; None if they were too many to store."""
        arrays = self._arrays(names.OBSERVED, ("observed", "train_rows", "val_rows"), ("sha256",))
        if arrays is None:
            return None
        path = self.folder / names.OBSERVED
        observed, classes = arrays["observed"], len(self.classes)
        if observed.ndim != 2 or (classes and observed.shape[1] != classes):
            raise UserError(
                f"{path}: labels of shape {observed.shape} do not fit {classes} classes"
            )
        for name in ("train_rows", "val_rows"):
            rows = arrays[name]
            if rows.size and not 0 <= rows.min() <= rows.max() < len(observed):
                raise UserError(
                    f"{path}: {name} name rows that the {len(observed)} labels do not have"
                )
        train, val = (observed[arrays[name]].astype(np.int8) for name in ("train_rows", "val_rows"))
        return Observed(train, val, arrays["val_rows"], str(arrays.get("sha256", "")))

    @cached_property
    def contents(self) -> dict[str, Contents]:
        """What the items of the train list and of the test split held; empty if not stored."""
        return read_contents(self.folder / names.CONTENTS, self.remedy)

    def scores(self, split: Split, epoch: int = 0) -> Array | None:
        """Read the logits of a split in their stored precision; None if they are not stored."""
        arrays = read_arrays(self.scores_file(split, epoch), ("logits",), remedy=self.remedy)
        return None if arrays is None else arrays["logits"]

    def calibration(self, remedy: str = DAMAGED) -> Record | None:
        """Read the record of the calibration; None if there is none."""
        path = self.calibration_file
        return read_json(path, remedy) if path.is_file() else None

    @property
    def race(self) -> Record | None:
        """Read the record of the race that chose the method; None if there was none."""
        path = self.folder / names.RACE
        return read_json(path, self.remedy) if path.is_file() else None

    def fact(self, key: str) -> Any:
        """Return an entry of the result, or else of the configuration."""
        value = (self.result or {}).get(key)
        return self.config.get(key) if value is None else value

    def outcome(self, key: str) -> float | None:
        """Return a number of the result."""
        return number(self.result or {}, key, self.folder / names.RESULT)

    def curve(self, key: str) -> dict[int, float]:
        """Return the finite values of a column of the history by epoch."""
        path = self.folder / names.HISTORY
        values = {record["epoch"]: number(record, key, path) for record in self.history}
        return {
            epoch: value
            for epoch, value in values.items()
            if value is not None and np.isfinite(value)
        }

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.fact("method") or "unnamed method")

    @property
    def best_epoch(self) -> int | None:
        """Chosen epoch; the best so far of an unfinished run."""
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
        """Logits and labels of the test rows, else of the validation rows; None without either."""
        return self.scored_on("test") or self.scored_on("val")

    def scored_on(self, split: Split) -> Scored | None:
        """Return the logits and labels of a split; None if one of them is not stored."""
        return self._scored(split, self.test_truth if split == "test" else self.val_truth)

    @cached_property
    def held_out(self) -> Scored | None:
        """Logits of the validation rows with their observed labels, also if others are known."""
        return self._scored("val", None if self.observed is None else self.observed.val)

    def _scored(self, split: Split, truth: Labels | None) -> Scored | None:
        if truth is None:
            return None
        epoch = self.best_epoch or 0
        logits = self.scores(split, epoch)
        if logits is None:
            return None
        if logits.shape != truth.shape:
            raise UserError(
                f"{self.scores_file(split, epoch)}: logits of shape {logits.shape} "
                f"do not fit the labels {truth.shape} of the run"
            )
        name = "test" if split == "test" else "validation"
        return Scored(name, logits.astype(np.float32), truth)

    def _truth(self, name: str) -> Labels | None:
        truth = (self._arrays(names.LABELS, (), (name,)) or {}).get(name)
        if truth is not None and truth.shape != (len(truth), len(self.classes)):
            raise UserError(
                f"{self.folder / names.LABELS}: {name} {truth.shape} does not fit "
                f"{len(self.classes)} classes"
            )
        return truth

    def _arrays(
        self, file: str, required: Sequence[str], optional: Sequence[str] = ()
    ) -> dict[str, Array] | None:
        return read_arrays(self.folder / file, required, optional, self.remedy)

    def _record(self, file: str) -> Record:
        """Read a JSON file; a missing one says how far the run is."""
        if self.has(file):
            return read_json(self.folder / file)
        if not self.folder.is_dir():
            raise UserError(f"{self.folder} is not a folder; give the folder of a finished run")
        if not self.exists:
            raise UserError(
                f"{self.folder} is not a run (no {file}); give the folder that spml train wrote"
            )
        raise UserError(
            f"{self.folder} is not a finished run (no {file}); "
            "resume it by spml train with --resume, or give another run"
        )
