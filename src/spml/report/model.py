"""The chosen model as the page needs it: its thresholds, its calibration, and where these come from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.inputs import HIGHEST, sigmoid
from spml.runs.names import LABELS
from spml.runs.run import Logits, Run
from spml.stored import Record

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Model:
    """What turns logits into tags.

    Attributes:
        thresholds: one per class, on the calibrated probability.
        knots: of the calibration; None where logits are taken as they are.
        features: whether its items are feature vectors; None where that is not stored.
        record: what `spml calibrate` has found; None where it did not set these thresholds.
    """

    thresholds: Array
    knots: list[list[list[float]]] | None = None
    features: bool | None = None
    record: Record | None = None

    @property
    def calibrated(self) -> bool:
        """Whether probabilities are those of a calibration."""
        return self.knots is not None

    @property
    def chosen(self) -> bool:
        """Whether somebody has set the thresholds."""
        return self.record is not None or bool((self.thresholds != 0.5).any())

    def logits(self, logits: Logits) -> Array:
        """Calibrated logits."""
        inside = np.clip(logits.astype(np.float64), -HIGHEST, HIGHEST)
        if self.knots is None:
            return inside
        from spml.use.calibrate.fit import apply_lines

        return apply_lines(inside, self.knots)

    def probabilities(self, logits: Logits) -> Array:
        """Calibrated probabilities."""
        return sigmoid(self.logits(logits))

    @cached_property
    def _cuts(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.thresholds) - np.log1p(-self.thresholds), np.float64)

    def tagged(self, logits: Logits) -> npt.NDArray[np.bool_]:
        """Which labels the model gives."""
        return np.asarray(self.logits(logits) >= self._cuts)


def read_model(run: Run) -> Model:
    """The model of a run; where none is stored, one that tags from 0.5 on."""
    if not run.model_info.is_file():
        return Model(np.full(len(run.classes), 0.5))
    from spml.model.store import read_info

    info = read_info(run.folder)
    if run.classes and info.classes != list(run.classes):
        raise UserError(
            f"{run.model_info} has other classes than {LABELS}; the folder mixes two runs"
        )
    path, record = run.calibration_file, run.calibration("run spml calibrate again")
    now = {"thresholds": info.thresholds, "calibration": info.calibration}
    return Model(
        np.array(info.thresholds, np.float64),
        info.calibration,
        info.preprocessing.get("kind") == "features",
        _checked(record, path) if record is not None and record.get("after") == now else None,
    )


def _checked(record: Record, path: Path) -> Record:
    """The record, in which everything that the page shows is there."""
    try:
        told = [record["overall"]["positives_per_item"]]
        for row in record["classes"]:
            told += [row[name] for name in ("threshold", "precision", "recall", "f1")]
            row["name"], row["known_positives"]
        whole = all(isinstance(one[end], float) for one in told for end in ("value", "low", "high"))
        lists = [record.get(key, []) for key in ("few_positives", "untagged", "below_aim")]
        whole = (
            whole
            and isinstance(record["items"], int)
            and all(isinstance(names, list) for names in lists)
        )
        whole = whole and all(isinstance(name, str) for names in lists for name in names)
        for name in ("logits", "calibrated"):
            curve = [
                np.asarray(record["reliability"][name][part], float)
                for part in ("probability", "share", "entries")
            ]
            whole = whole and len({part.shape for part in curve}) == 1 and bool(curve[2].any())
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise UserError(f"{path}: not written by spml calibrate; move it away")
    return record
