"""What a run's stored scores and labels say beyond its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spml.errors import UserError
from spml.report.text import NONE, count, percent
from spml.runs.names import HISTORY, LABELS, OBSERVED, RESULT
from spml.runs.run import Observed, Run

ON_TEST, ON_VAL = "on the test set", "on the validation set"
ON_OBSERVED = "on observed labels only, where every unknown counts as negative: for comparing models, not as a level"

_TAGS = (
    ("CP", "precision, mean over classes"),
    ("CR", "recall, mean over classes"),
    ("CF1", "harmonic mean of the two"),
    ("macro_f1", "F1, mean over classes"),
    ("OP", "precision, all labels together"),
    ("OR", "recall, all labels together"),
    ("OF1", "harmonic mean of the two"),
)


@dataclass(frozen=True)
class ClassPrecision:
    """Average precision of each class in percent, and the labels it was measured on."""

    values: Mapping[str, float]
    basis: str


def class_precision(run: Run) -> ClassPrecision | None:
    """The recorded AP of each class, or else that of the stored scores, or None."""
    recorded = (run.result or {}).get("per_class_ap")
    if recorded:
        if not isinstance(recorded, dict) or not all(
            isinstance(v, int | float | None) for v in recorded.values()
        ):
            raise UserError(
                f"{run.folder / RESULT}: 'per_class_ap' must give a number for each class"
            )
        values = {str(name): float(value) for name, value in recorded.items() if value is not None}
        basis = ON_TEST if run.outcome("test_map") is not None else _validation(run)
        return ClassPrecision(
            {name: value for name, value in values.items() if np.isfinite(value)}, basis
        )
    scored = run.scored
    if scored is None or not scored.usable:
        return None
    from spml.metrics import average_precision, observed_average_precision

    measure = average_precision if scored.complete else observed_average_precision
    computed = 100 * measure(scored.logits, scored.truth)
    values = {
        name: float(value)
        for name, value in zip(run.classes, computed, strict=True)
        if np.isfinite(value)
    }
    basis = (ON_TEST if scored.split == "test" else ON_VAL) if scored.complete else ON_OBSERVED
    return ClassPrecision(values, basis)


def _validation(run: Run) -> str:
    return ON_OBSERVED if run.fact("selection") == "observed" else ON_VAL


def threshold_table(run: Run) -> list[tuple[str, str, str]]:
    """Precision, recall and F1 of the tags at 0.5: name, meaning, percent; empty without complete labels."""
    scored = run.scored
    if scored is None or not scored.complete or not scored.usable:
        return []
    from spml.metrics import threshold_metrics

    metrics = threshold_metrics(scored.logits, scored.truth, threshold=0.5)
    return [
        (name.replace("_f", " F"), meaning, percent(100 * getattr(metrics, name)))
        for name, meaning in _TAGS
    ]


def label_facts(observed: Observed) -> list[tuple[str, str]]:
    """Counts of the labels that training saw."""
    positive = observed.train == 1
    per_item, per_class = positive.sum(axis=1), positive.sum(axis=0)
    amounts = {"none": per_item == 0, "one": per_item == 1, "more": per_item > 1}
    shares = [
        f"{amount}: {count(items.sum())} item{'s' * int(items.sum() != 1)} ({100 * items.mean():.1f} %)"
        for amount, items in amounts.items()
        if items.any()
    ]
    median = count(float(np.median(per_class))) if per_class.size else NONE
    return [
        ("Items in training", count(len(per_item))),
        ("Items held out for validation", count(observed.num_val)),
        ("Observed positives", count(positive.sum())),
        ("Observed negatives", count((observed.train == -1).sum())),
        ("Positives per item", "; ".join(shares)),
        (
            "Positives per class",
            f"{count(per_class.min(initial=len(per_item)))} to {count(per_class.max(initial=0))}, median {median}",
        ),
        ("Classes without a positive", count((per_class == 0).sum())),
        ("SHA-256 of the labels", observed.sha256),
    ]


def missing(run: Run) -> list[str]:
    """What the page cannot show, and why, a sentence each."""
    notes = []
    if run.result is None:
        done = run.history[-1]["epoch"] if run.history else 0
        wanted = run.config.get("epochs")
        of = f" of {wanted}" if wanted is not None else ""
        notes.append(
            f"This run has not finished: there is no {RESULT}. Shown is its state after epoch {done}{of}."
        )
    elif run.outcome("test_map") is None:
        notes.append("There is no test mAP: the run had no labelled test set.")
    absent = [file for file in (HISTORY, LABELS, OBSERVED) if not run.has(file)]
    if absent:
        notes.append(f"Not in the run folder: {', '.join(absent)}. What rests on it is left out.")
    if run.scored is None:
        notes.append(
            "There are no stored scores with labels for the chosen epoch, so no confidences are shown."
        )
    elif np.isnan(run.scored.logits).any():
        notes.append(
            "The stored scores hold NaN: the model has diverged. What is computed from them is left out."
        )
    return notes
