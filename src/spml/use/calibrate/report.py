"""The record of a calibration that calibration.json holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spml.metrics.draw import drawn_chance
from spml.metrics.reliability import Reliability, reliability
from spml.metrics.scores import sigmoid
from spml.model import ModelInfo
from spml.model.calibration import Knots, apply_lines
from spml.model.store import TagRule
from spml.use.calibrate.estimates import Array, Evidence, Figures, Measure
from spml.use.calibrate.targets import Target
from spml.use.calibrate.validation import Validation

FEW = 5  # positives of a class, below which its figures depend on the other classes


@dataclass(frozen=True, eq=False)
class CalibrationResult:
    """A fitted calibration with its thresholds and figures.

    Attributes:
        evidence: validation items with the chances of their labels.
        knots: of the calibration; None if logits stay as they are.
        thresholds: one per class, on the calibrated probability.
        figures: metrics of the validation items at these thresholds.
        ends: low and high end of each figure, and of the thresholds.
    """

    evidence: Evidence
    knots: Knots | None
    thresholds: Array
    figures: Figures
    ends: dict[str, tuple[Array, Array]]


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
        "reliability": {name: _curve(curve) for name, curve in curves.items()},
    }


def _curve(curve: Reliability) -> dict[str, Any]:
    columns = {"probability": curve.probability, "share": curve.share, "entries": curve.entries}
    return {"error": curve.error, **{name: values.tolist() for name, values in columns.items()}}
