"""How far the run's probabilities can be believed: what was said against what came true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from spml.metrics.inputs import sigmoid
from spml.metrics.reliability import Reliability, reliability
from spml.report.model import Model
from spml.report.svg import COLOURS, QUIET, draw
from spml.report.text import count, percent
from spml.runs.run import Run
from spml.stored import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RAW, CALIBRATED = "as the network gives them", "calibrated"
TRUE = "Measured on the complete labels of the {split} set."
ESTIMATED = (
    "An estimate: only observed labels of these validation items are known, and the chances that spml calibrate gives "
    "the others stand in for them. It cannot tell where those chances are themselves wrong."
)
LOOKS = {RAW: (COLOURS[1], "--", "s"), CALIBRATED: (COLOURS[0], "-", "o")}


def calibration(run: Run, model: Model) -> dict[str, Any]:
    """Reliability curves with their errors, and what calibration found; words where there are none."""
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
    """True curves where complete labels are stored, or else those that calibration estimated."""
    scored = run.scored
    if scored is not None and scored.complete and scored.usable:
        positive = scored.truth == 1
        curves = {RAW: reliability(sigmoid(scored.logits), positive)}
        if model.calibrated:
            curves[CALIBRATED] = reliability(model.probabilities(scored.logits), positive)
        return curves, TRUE.format(split=scored.split)
    if model.record is None:
        return {}, ""
    stored = {RAW: "logits", CALIBRATED: "calibrated"} if model.calibrated else {RAW: "logits"}
    curves = {name: _stored(model.record, key) for name, key in stored.items()}
    return curves, TRUE.format(split="validation") if model.record.get(
        "labels"
    ) == "complete" else ESTIMATED


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
        told, scored = record["overall"]["positives_per_item"], run.scored
        span = f"{told['value']:.2f}, {told['low']:.2f} to {told['high']:.2f}"
        if scored is not None and scored.complete and len(scored.truth):
            span += f"; truly {(scored.truth == 1).sum() / len(scored.truth):.2f} in {scored.split}"
        rows.append(("Positives per item, estimated", span))
    named = (
        ("Classes with few positives", "few_positives"),
        ("Not tagged at all: no validation item is sure enough for the aim", "untagged"),
        ("Short of the aim on the validation items", "below_aim"),
    )
    for words, key in named:
        if names := record.get(key):
            rows.append((words, ", ".join(names[:8]) + (" …" if len(names) > 8 else "")))
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
