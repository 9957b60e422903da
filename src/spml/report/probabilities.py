"""The chosen model of a run and how far its probabilities can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from spml.errors import UserError
from spml.files import Record
from spml.metrics.reliability import Reliability, reliability
from spml.metrics.scores import sigmoid
from spml.report.figures import COLOURS, QUIET, draw
from spml.report.format import count, percent
from spml.runs.names import LABELS
from spml.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spml.model.store import TagRule

Array = npt.NDArray[np.float64]
RAW, CALIBRATED = "as the network gives them", "calibrated"
TRUE = "Measured on the complete labels of the {split} set."
ESTIMATED = (
    "An estimate: only observed labels of these validation items are known; for the others it uses "
    "the chances from spml calibrate. It cannot show errors in those chances."
)
LOOKS = {RAW: (COLOURS[1], "--", "s"), CALIBRATED: (COLOURS[0], "-", "o")}


@dataclass(frozen=True, eq=False)
class Model:
    """The chosen model as the page needs it.

    Attributes:
        rule: decides tags and calibrates probabilities.
        features: whether its items are feature vectors; None if that is not stored.
        record: calibration.json; None if `spml calibrate` did not set these thresholds.
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
    path, record = run.calibration_file, run.calibration("run spml calibrate again")
    now = {"thresholds": info.thresholds, "calibration": info.calibration}
    return Model(
        info.tag_rule,
        info.preprocessing.get("kind") == "features",
        _checked(record, path) if record is not None and record.get("after") == now else None,
    )


def _checked(record: Record, path: Path) -> Record:
    """The record; raise UserError if it lacks something that the page shows."""
    try:
        ranges = [record["overall"]["positives_per_item"]]
        for row in record["classes"]:
            ranges += [row[name] for name in ("threshold", "precision", "recall", "f1")]
            row["name"], row["known_positives"]
        whole = all(
            isinstance(one[end], float) for one in ranges for end in ("value", "low", "high")
        )
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
    curves = {name: _stored(model.record, key) for name, key in stored.items()}
    complete = model.record.get("labels") == "complete"
    return curves, TRUE.format(split="validation") if complete else ESTIMATED


def _stored(record: Record, key: str) -> Reliability:
    curve = record["reliability"][key]
    probability, share = (np.asarray(curve[part], np.float64) for part in ("probability", "share"))
    return Reliability(probability, share, np.asarray(curve["entries"], np.int64))


def _facts(run: Run, model: Model, curves: Mapping[str, Reliability]) -> list[tuple[str, str]]:
    rows = [
        (f"Calibration error, {name}", f"{percent(100 * curve.error)} %")
        for name, curve in curves.items()
    ]
    record = model.record
    if record is None:
        return rows
    kind = {"complete": "complete", "observed": "observed, no other was read"}.get(
        str(record.get("labels")), "?"
    )
    rows += [
        ("Calibrated on", f"{count(record.get('items'))} validation items; labels: {kind}"),
        ("Thresholds are for", str(record.get("aim")).replace("f1", "F1")),
        ("Calibrated by", str(record.get("method"))),
    ]
    if record.get("labels") == "observed":
        number, scored = record["overall"]["positives_per_item"], run.scored
        span = f"{number['value']:.2f}, {number['low']:.2f} to {number['high']:.2f}"
        if scored is not None and scored.complete and len(scored.truth):
            span += f"; truly {(scored.truth == 1).sum() / len(scored.truth):.2f} in {scored.split}"
        rows.append(("Positives per item, estimated", span))
    named = (
        ("Classes with few positives", "few_positives"),
        ("Not tagged at all: no validation item is sure enough for the aim", "untagged"),
        ("Short of the aim on the validation items", "below_aim"),
    )
    for title, key in named:
        if names := record.get(key):
            rows.append((title, ", ".join(names[:8]) + (" …" if len(names) > 8 else "")))
    return rows


def reliability_figure(curves: Mapping[str, Reliability]) -> Markup:
    """Mean probability of each bin against the share of its labels that are positive."""

    def paint(ax: Axes) -> None:
        ax.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=":")
        for name, curve in curves.items():
            colour, line, marker = LOOKS[name]
            label = f"{name}: error {percent(100 * curve.error)} %"
            ax.plot(
                curve.probability,
                curve.share,
                color=colour,
                linestyle=line,
                linewidth=1.4,
                label=label,
            )
            sizes = 8 + 72 * np.sqrt(curve.entries / curve.entries.max())
            ax.scatter(
                curve.probability,
                curve.share,
                sizes,
                color=colour,
                marker=marker,
                clip_on=False,
                zorder=3,
            )
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.set_xlabel("probability")
        ax.set_ylabel("share that is positive")
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), borderpad=0)

    return draw(
        paint,
        name="reliability",
        label="Probabilities against the share that is positive",
        height=330,
    )
