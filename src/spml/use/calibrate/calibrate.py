"""Calibrate probabilities and choose one threshold per class, from validation labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spml.errors import UserError
from spml.metrics.scores import sigmoid
from spml.model.calibration import apply_lines
from spml.model.store import ModelInfo, TagRule, read_info, write_info
from spml.runs.folder import RunFolder
from spml.runs.run import Run
from spml.train.card import write_card
from spml.use.calibrate.estimates import Evidence, Figures, Measure, intervals
from spml.use.calibrate.fit import Shape, fit_lines, logit, straight, straight_step
from spml.use.calibrate.report import CalibrationResult, calibration_report
from spml.use.calibrate.targets import Target, thresholds
from spml.use.calibrate.validation import Kind, Validation, read_validation
from spml.use.evaluate import FEWEST_ITEMS


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
        advance: called with the number of resamples done and their total.
    """
    target = Target.parse(aim)
    if method not in ("temperature", "isotonic", "none"):
        raise UserError(f"--method {method}: there are temperature, isotonic and none")
    if batch_size < 1:
        raise UserError(f"--batch-size must be above 0, not {batch_size}")
    if seed < 0:
        raise UserError(f"--seed must not be negative, not {seed}")
    validation = read_validation(run, labels, root=root, batch_size=batch_size)
    if validation.kind == "complete" and positives_per_item is not None:
        raise UserError("--positives-per-item is for observed labels; complete labels determine it")
    result = fit_calibration(validation, target, method, positives_per_item, seed, advance)
    before = _before(Run(run), validation.info)
    after = {"thresholds": result.thresholds.tolist(), "calibration": result.knots}
    former = replace(validation.info, **before)
    record = {
        "labels": validation.kind,
        "aim": str(target),
        "method": method,
        "seed": seed,
        "scores": validation.source,
        **calibration_report(validation, result, former, target, positives_per_item),
        "before": before,
        "after": after,
    }
    RunFolder(run).write_calibration(record)
    write_info(run, replace(validation.info, **after))
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
    return CalibrationResult(
        evidence, knots, chosen, figures, intervals({**figures, "threshold": chosen}, drawn)
    )


def _before(run: Run, info: ModelInfo) -> dict[str, Any]:
    """Thresholds and calibration of the model before it was first calibrated."""
    now = {"thresholds": info.thresholds, "calibration": info.calibration}
    if not run.calibration_file.is_file():
        return now
    stored = _stored(run)
    return dict(stored["before"]) if stored["after"] == now else now


def _stored(run: Run) -> dict[str, Any]:
    try:
        record = run.calibration() or {}
    except UserError:
        record = {}
    for name in ("before", "after"):
        if not isinstance(record.get(name), dict) or set(record[name]) != {
            "thresholds",
            "calibration",
        }:
            raise UserError(f"{run.calibration_file}: not written by spml calibrate; move it away")
    return record
