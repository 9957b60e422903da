"""The chosen model of a run and how far its probabilities can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes

from spml.errors import UserError
from spml.files import Record
from spml.metrics.reliability import Reliability, reliability
from spml.metrics.scores import sigmoid
from spml.report.figures import ABOVE, COLOURS, QUIET, draw
from spml.report.format import count, percent
from spml.runs.names import LABELS
from spml.runs.run import Run

if TYPE_CHECKING:
    from spml.model.store import TagRule

Array = npt.NDArray[np.float64]
RAW, CALIBRATED = "as the network gives them", "calibrated"
TRUE = "Measured on the complete labels of the {split} set."
ESTIMATED = (
    "An estimate: only observed labels of these validation items are known; for the others it uses "
    "the chances from spml calibrate. It cannot show errors in those chances."
)
CURVE = ("probability", "share", "entries")
NAMED = {  # classes that a calibration names
    "Classes with few positives": "few_positives",
    "Not tagged at all: no validation item is sure enough for the aim": "untagged",
    "Short of the aim on the validation items": "below_aim",
}
LOOKS = {RAW: (COLOURS[1], "--", "s"), CALIBRATED: (COLOURS[0], "-", "o")}


@dataclass(frozen=True, eq=False)
class Model:
    """The chosen model as the page needs it.

    `features` says whether its items are feature vectors, None if that is not stored; `record` is
    calibration.json, None if `spml calibrate` did not set these thresholds.
    """

    rule: TagRule
    features: bool | None = None
    record: Record | None = None

    @property
    def calibrated(self) -> bool:
        """Whether the model has a calibration."""
        return self.rule.knots is not None

    @property
    def thresholds(self) -> Array:
        """One per class, on the calibrated probability."""
        return self.rule.thresholds

    @property
    def chosen(self) -> bool:
        """Whether the thresholds differ from the default or were set by `spml calibrate`."""
        return self.record is not None or bool((self.thresholds != 0.5).any())


def read_model(run: Run) -> Model:
    """The stored model of a run, or a rule with threshold 0.5 if none is stored."""
    # torch is imported here, so that commands which only format tables start fast
    from spml.model.store import TagRule, read_info

    if not run.model_info.is_file():
        return Model(TagRule(np.full(len(run.classes), 0.5)))
    info = read_info(run.folder)
    if run.classes and info.classes != list(run.classes):
        raise UserError(
            f"{run.model_info} has other classes than {LABELS}; the folder mixes two runs"
        )
    record = run.calibration("run spml calibrate again")
    now = {"thresholds": info.thresholds, "calibration": info.calibration}
    return Model(
        info.tag_rule,
        info.preprocessing.get("kind") == "features",
        record if record is not None and record.get("after") == now else None,
    )


def calibration(run: Run, model: Model) -> dict[str, Any]:
    """Reliability curves with their errors, and the facts that `spml calibrate` recorded."""
    curves, basis = _curves(run, model)
    return {
        "figure": reliability_figure(curves) if curves else None,
        "basis": basis,
        "facts": _facts(run, model, curves),
        "calibrated": model.record is not None,
        "by_hand": model.record is None and model.chosen,
        "folder": str(run.folder),
    }


def _curves(run: Run, model: Model) -> tuple[dict[str, Reliability], str]:
    """Curves from complete labels, or else as estimated by calibration, and their basis."""
    scored = run.scored
    if scored is not None and scored.complete and scored.usable:
        positive = scored.truth == 1
        curves = {RAW: reliability(sigmoid(scored.logits), positive)}
        if model.calibrated:
            curves[CALIBRATED] = reliability(model.rule.probabilities(scored.logits), positive)
        return curves, TRUE.format(split=scored.split)
    if model.record is None:
        return {}, ""
    stored = {RAW: "logits", CALIBRATED: "calibrated"} if model.calibrated else {RAW: "logits"}
    parts = {name: model.record["reliability"][key] for name, key in stored.items()}
    curves = {
        name: Reliability(*(np.asarray(own[part]) for part in CURVE)) for name, own in parts.items()
    }
    complete = model.record.get("labels") == "complete"
    return curves, TRUE.format(split="validation") if complete else ESTIMATED


def _facts(run: Run, model: Model, curves: Mapping[str, Reliability]) -> list[tuple[str, str]]:
    rows = [
        (f"Calibration error, {name}", f"{percent(100 * curve.error)} %")
        for name, curve in curves.items()
    ]
    record = model.record
    if record is None:
        return rows
    alone = ", no other was read" if record.get("labels") == "observed" else ""
    items = f"{count(record['items'])} validation items"
    rows += [
        ("Calibrated on", f"{items}; labels: {record.get('labels')}{alone}"),
        ("Thresholds are for", str(record.get("aim")).replace("f1", "F1")),
        ("Calibrated by", str(record.get("method"))),
    ]
    if record.get("labels") == "observed":
        number, scored = record["overall"]["positives_per_item"], run.scored
        span = f"{number['value']:.2f}, {number['low']:.2f} to {number['high']:.2f}"
        if scored is not None and scored.complete and len(scored.truth):
            span += f"; truly {(scored.truth == 1).sum() / len(scored.truth):.2f} in {scored.split}"
        rows.append(("Positives per item, estimated", span))
    for title, key in NAMED.items():
        if names := record.get(key):
            rows.append((title, ", ".join(names[:8]) + (" …" if len(names) > 8 else "")))
    return rows


def reliability_figure(curves: Mapping[str, Reliability]) -> Markup:
    """Mean probability of each bin against the share of its labels that are positive."""

    def paint(ax: Axes) -> None:
        ax.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=":")
        for name, curve in curves.items():
            colour, line, marker = LOOKS[name]
            points = (curve.probability, curve.share)
            label = f"{name}: error {percent(100 * curve.error)} %"
            ax.plot(*points, color=colour, linestyle=line, linewidth=1.4, label=label)
            sizes = 8 + 72 * np.sqrt(curve.entries / curve.entries.max())
            ax.scatter(*points, sizes, color=colour, marker=marker, clip_on=False, zorder=3)
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.set_xlabel("probability")
        ax.set_ylabel("share that is positive")
        ax.legend(**ABOVE)

    label = "Probabilities against the share that is positive"
    return draw(paint, name="reliability", label=label, height=330)
