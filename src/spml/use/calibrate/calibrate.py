"""Calibrate probabilities and choose one threshold per class, from validation labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spml.errors import UserError
from spml.files import write_json
from spml.metrics.draw import drawn_chance
from spml.metrics.reliability import reliability
from spml.metrics.scores import sigmoid
from spml.model.calibration import Knots, apply_lines
from spml.model.store import ModelInfo, TagRule, read_info, write_info
from spml.runs.run import Run
from spml.train.card import write_card
from spml.use.calibrate.estimates import Array, Evidence, Figures, Measure, intervals
from spml.use.calibrate.fit import (
    Shape,
    Target,
    fit_lines,
    logit,
    straight,
    straight_step,
    thresholds,
)
from spml.use.calibrate.validation import Kind, Validation, read_validation
from spml.use.evaluate import FEWEST_ITEMS

CHANGED = {"thresholds", "calibration"}  # in model.json
FEW = 5  # positives of a class, below which its figures depend on the other classes


@dataclass(frozen=True, eq=False)
class CalibrationResult:
    """A fitted calibration with its thresholds and figures."""

    evidence: Evidence  # validation items with the chances of their labels
    knots: Knots | None  # None if logits stay as they are
    thresholds: Array  # one per class, on the calibrated probability
    figures: Figures  # metrics of the validation items at these thresholds
    ends: dict[str, tuple[Array, Array]]  # low and high end of each figure and of the thresholds


def calibrate(
    run: Path,
    *,
    aim: str = "f1",
    labels: Kind | None = None,
    method: Shape = "temperature",
    positives_per_item: float | None = None,
    seed: int = 0,
    root: Path | None = None,
    batch_size: int = 64,
    accept_changed_data: bool = False,
    advance: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Fit a calibration and thresholds, and write them to a run's model.json, card and record.

    The record is calibration.json.

    Args:
        run: a finished run.
        aim: "f1", or a least value for each class such as "precision=0.9" or "recall=0.9".
        labels: "complete" or "observed"; default: the labels that chose the run's epoch.
        method: "temperature" scales and shifts logits, "isotonic" also bends them, "none" only sets
            thresholds.
        positives_per_item: mean number of positives of an item if it is known, for observed labels.
        seed: seed of the resamples behind the intervals.
        root: folder of the data's files, if they must be read.
        batch_size: items per batch, if scores must be computed.
        accept_changed_data: compute scores although items have changed since training.
        advance: called with the number of resamples done and their total.
    """
    target = Target.parse(aim)
    if method not in ("temperature", "isotonic", "none"):
        raise UserError(f"--method {method}: there are temperature, isotonic and none")
    if batch_size < 1:
        raise UserError(f"--batch-size must be above 0, not {batch_size}")
    if seed < 0:
        raise UserError(f"--seed must not be negative, not {seed}")
    validation = read_validation(
        run,
        labels,
        root=root,
        batch_size=batch_size,
        accept_changed_data=accept_changed_data,
    )
    if validation.kind == "complete" and positives_per_item is not None:
        raise UserError("--positives-per-item is for observed labels; complete labels determine it")
    result = fit_calibration(validation, target, method, positives_per_item, seed, advance)
    stored, info = Run(run), validation.info
    before: dict[str, Any] = {"thresholds": info.thresholds, "calibration": info.calibration}
    if stored.calibration_file.is_file() and (earlier := _stored(stored))["after"] == before:
        before = dict(earlier["before"])  # of the model before it was first calibrated
    after = {"thresholds": result.thresholds.tolist(), "calibration": result.knots}
    former = replace(info, **before)
    record = {
        "labels": validation.kind,
        "aim": str(target),
        "method": method,
        "seed": seed,
        "scores": validation.source,
        "changed_items": validation.changed_items,
        **calibration_report(validation, result, former, target, positives_per_item),
        "before": before,
        "after": after,
    }
    write_json(stored.calibration_file, record)
    write_info(run, replace(info, **after))
    write_card(run)
    return record


def undo(run: Path) -> None:
    """Restore thresholds and calibration from before `calibrate`, and remove calibration.json."""
    file = Run(run).calibration_file
    if not file.is_file():
        raise UserError(f"{run}: no {file.name} here, so there is nothing to undo")
    write_info(run, replace(read_info(run), **_stored(Run(run))["before"]))
    file.unlink()
    write_card(run)


def fit_calibration(
    validation: Validation,
    target: Target,
    shape: Shape,
    positives: float | None = None,
    seed: int = 0,
    advance: Callable[[int, int], None] | None = None,
) -> CalibrationResult:
    """Fit the calibration, choose the thresholds, and resample the items for the intervals."""
    counted = int((validation.labels == 1).any(axis=1).sum())
    if counted < FEWEST_ITEMS:
        least = f"calibration needs {FEWEST_ITEMS} at least; train with more rows in split val"
        raise UserError(f"{counted} validation items have a positive; {least}")
    if validation.kind == "complete":
        evidence = Evidence.of_complete(validation.logits, validation.labels)
    else:
        evidence = Evidence.of_observed(validation.logits, validation.labels, positives)
    z, w = evidence.logits, evidence.chances
    slopes, shifts = straight(z, w)
    knots = fit_lines(z, w, shape)
    fitted = fit_lines(z, w, "temperature") if knots is None else knots
    chosen = thresholds(sigmoid(apply_lines(z, fitted)), target)
    if knots is None:
        chosen = sigmoid((logit(chosen) - shifts) / slopes)
    measure = Measure(z, TagRule(chosen, knots).tagged(z))
    figures = measure(w, np.ones(len(z)))
    drawn: list[Figures] = []
    for counts, chances in evidence.resamples(seed, advance):
        slope, shift = straight_step(z, chances, counts, slopes, shifts)
        cuts = (logit(thresholds(sigmoid(slope * z + shift), target, counts)) - shift) / slope
        moved = sigmoid(apply_lines(cuts[None], knots)[0])
        drawn.append({**measure(chances, counts), "threshold": moved})
    ends = intervals({**figures, "threshold": chosen}, drawn, evidence.error)
    return CalibrationResult(evidence, knots, chosen, figures, ends)


def _stored(run: Run) -> dict[str, Any]:
    try:
        record = run.calibration() or {}
    except UserError:
        record = {}
    states = [record.get("before"), record.get("after")]
    if not all(isinstance(one, dict) and set(one) == CHANGED for one in states):
        raise UserError(f"{run.calibration_file}: not written by spml calibrate; move it away")
    return record


def calibration_report(
    validation: Validation,
    result: CalibrationResult,
    before: ModelInfo,
    target: Target,
    positives: float | None,
) -> dict[str, Any]:
    """The record of a calibration, for readers and for the report page.

    `before` describes the model before it was calibrated; `positives` is the mean number of
    positives of an item, if the user gave it.
    """
    evidence, figures = result.evidence, {**result.figures, "threshold": result.thresholds}
    seen = (validation.labels == 1).sum(axis=0)

    def interval(name: str, column: int | None = None) -> dict[str, float]:
        value, (low, high) = figures[name], result.ends[name]
        parts = [value, low, high] if column is None else [value[column], low[column], high[column]]
        return dict(zip(("value", "low", "high"), map(float, parts), strict=True))

    per_class = ("threshold", "prior", "precision", "recall", "f1", "ap")
    share = seen / max(len(evidence.logits), 1)
    rows = [
        {
            "name": name,
            "known_positives": int(seen[c]),
            **{key: interval(key, c) for key in per_class},
            "propensity": float(min(share[c] / max(figures["prior"][c], 1e-12), 1)),
        }
        for c, name in enumerate(validation.info.classes)
    ]
    raw, calibrated = sigmoid(evidence.logits), sigmoid(apply_lines(evidence.logits, result.knots))
    tags = TagRule(result.thresholds, result.knots).tagged(evidence.logits).any(axis=0)
    short = np.zeros_like(tags)
    if target.name != "f1":
        short = tags & (figures[target.name] < target.least)
    earlier = Measure(evidence.logits, before.tag_rule.tagged(evidence.logits))
    at_start = earlier(evidence.chances, np.ones(len(evidence.logits)))
    whole = [name for name, value in figures.items() if np.ndim(value) == 0]
    curves = {
        "logits": reliability(raw, evidence.chances),
        "calibrated": reliability(calibrated, evidence.chances),
    }
    if evidence.fit is not None:
        chance = drawn_chance(evidence.fit.logits(evidence.logits))
        curves["drawn"] = reliability(chance, np.asarray(evidence.observed) == 1)

    def named(chosen: Any) -> list[str]:
        return [name for name, one in zip(validation.info.classes, chosen, strict=True) if one]

    return {
        "items": len(evidence.logits),
        "items_left_out": len(validation.logits) - len(evidence.logits),
        "positives_per_item_given": positives,
        "few_positives": named(seen < FEW),
        "untagged": named(~tags),
        "below_aim": named(short),
        "overall": {name: interval(name) for name in whole},
        "overall_before": {name: float(at_start[name]) for name in whole},
        "classes": rows,
        "reliability": {
            name: {"error": curve.error} | {k: v.tolist() for k, v in asdict(curve).items()}
            for name, curve in curves.items()
        },
    }
