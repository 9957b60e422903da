"""The chosen model as the page needs it: its thresholds, its calibration, and where these come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.model.tags import TagRule
from spml.report.run import Run
from spml.runs.files import Record, read_json

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Model:
    """What turns logits into tags.

    Attributes:
        rule: that decides tags.
        features: whether its items are feature vectors; None where that is not stored.
        record: what `spml calibrate` has found; None where it did not set these thresholds.
    """

    rule: TagRule
    features: bool | None = None
    record: Record | None = None

    @property
    def calibrated(self) -> bool:
        """Whether probabilities are those of a calibration."""
        return self.rule.knots is not None

    @property
    def thresholds(self) -> Array:
        """One per class, on the calibrated probability."""
        return self.rule.thresholds

    @property
    def chosen(self) -> bool:
        """Whether somebody has set the thresholds."""
        return self.record is not None or bool((self.thresholds != 0.5).any())


def read_model(run: Run) -> Model:
    """The model of a run; where none is stored, one that tags from 0.5 on."""
    if not (run.folder / "best" / "model.json").is_file():
        return Model(TagRule(np.full(len(run.classes), 0.5)))
    from spml.model.store import read_info

    info = read_info(run.folder)
    if run.classes and info.classes != list(run.classes):
        raise UserError(
            f"{run.folder}: best/model.json has other classes than labels.npz; the folder mixes two runs"
        )
    path = run.folder / "calibration.json"
    record = read_json(path, "run spml calibrate again") if path.is_file() else None
    now = {"thresholds": info.thresholds, "calibration": info.calibration}
    return Model(
        info.tag_rule,
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
