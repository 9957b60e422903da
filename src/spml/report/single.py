"""What the page of one run shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from spml.report import figures, settings
from spml.report.cutoffs import threshold_effects
from spml.report.examples import examples
from spml.report.measures import (
    ClassPrecision,
    class_precision,
    label_facts,
    missing,
    threshold_table,
)
from spml.report.missed import most_missed
from spml.report.model import Model, read_model
from spml.report.pictures import Pictures, unread
from spml.report.reliable import calibration
from spml.report.suspects import suspects
from spml.report.text import NONE, chosen_by, count, duration, percent, selection, setting
from spml.runs.run import Run

FEW, MANY = 20, 40  # classes in one figure; classes in two


@dataclass(frozen=True)
class Card:
    """A headline number with a line below it."""

    name: str
    value: str
    note: str = ""


def run_page(
    run: Run, title: str | None, found: Callable[[Model], Pictures], number: int
) -> dict[str, Any]:
    """The template's values.

    Args:
        run: to show.
        title: heading in place of one made from method and data set.
        found: gives the pictures of its items.
        number: of example pictures.
    """
    precision, model = class_precision(run), read_model(run)
    pictures = found(model)
    shown, suspected = examples(run, model, pictures, number), suspects(run, model, pictures)
    facts = [run.fact(key) for key in ("data", "backbone")]
    seed = run.fact("seed")
    return {
        "title": title or f"{run.method} on {setting(run.fact('data') or 'unnamed data')}",
        "subtitle": " · ".join(
            [
                run.name,
                *(setting(fact) for fact in facts if fact is not None),
                f"seed {setting(seed)}",
            ]
        ),
        "notes": missing(run),
        "cards": _cards(run),
        "estimated": run.fact("selection") == "observed",
        "improving": improving(run),
        "curves": learning_curves(run),
        "history": _history(run),
        "precision": precision,
        "bars": _bars(run, precision),
        "class_table": class_table(run, [("AP, %", precision.values)] if precision else []),
        "few": len(run.classes) <= FEW,
        "confidence": _confidence(run),
        "split": run.scored.split if run.scored else None,
        "complete": run.scored.complete if run.scored else None,
        "tags": threshold_table(run),
        "calibration": calibration(run, model),
        "cutoffs": threshold_effects(run, model),
        "missed": most_missed(run, model),
        "examples": shown,
        "suspects": suspected,
        "unread": unread(pictures),
        "labels": label_facts(run.observed) if run.observed else [],
        "label_figure": label_figure(run),
        "settings": settings.tables(run.config),
        "command": settings.command(run),
    }


def _cards(run: Run) -> list[Card]:
    epochs, kind = run.fact("epochs"), run.fact("selection")
    so_far = "" if run.result else ", so far"
    test = run.outcome("test_map")
    speed = count(run.outcome("images_per_second"))
    where = f" on {device}" if (device := run.fact("device")) else ""
    train = count(len(run.observed.train)) if run.observed else NONE
    num_val = run.observed.num_val if run.observed else None
    num_val = len(run.val_truth) if run.val_truth is not None else num_val
    held = [f"{count(num_val)} validation"] if num_val is not None else []
    held += [f"{count(len(run.test_truth))} test"] if run.test_truth is not None else []
    return [
        Card(
            "Test mAP",
            percent(test),
            "percent, at the chosen epoch" if test is not None else "not measured",
        ),
        Card(
            f"Validation {chosen_by([kind])}",
            percent(run.val_map),
            f"epoch chosen on {selection(kind)}{so_far}",
        ),
        Card(
            "Best epoch",
            count(run.best_epoch),
            f"of {setting(epochs)}{so_far}" if epochs is not None else "",
        ),
        Card("Training items", train, " · ".join(held)),
        Card("Classes", count(len(run.classes)) if run.classes else NONE),
        Card(
            "Time",
            duration(run.outcome("seconds")),
            f"{speed} images per second{where}" if speed != NONE else "",
        ),
    ]


def improving(run: Run) -> bool:
    """Whether the last epoch of a finished run was its best, so that it may have ended too early."""
    epochs = [epoch for epoch in run.curve("val_map") if epoch > 0]
    return run.result is not None and len(epochs) > 1 and run.best_epoch == max(epochs)


def learning_curves(run: Run) -> list[Markup]:
    """Loss, and the validation figure with the chosen epoch."""
    figure = f"validation {chosen_by([run.fact('selection')])}, %"
    shown = (("loss", "training loss", None), ("val_map", figure, run.best_epoch))
    return [
        figures.curve(run.curve(key), title, name=f"curve-{key}", chosen=chosen)
        for key, title, chosen in shown
        if run.curve(key)
    ]


def _history(run: Run) -> tuple[list[str], list[list[str]]]:
    names = list(dict.fromkeys(name for record in run.history for name in record))
    return names, [[_cell(record.get(name)) for name in names] for record in run.history]


def _cell(value: Any) -> str:
    if value is None:
        return NONE
    return f"{value:.6g}" if isinstance(value, float) else setting(value)


def observed_counts(run: Run) -> dict[str, int] | None:
    """Observed positives of each class in training."""
    if run.observed is None or not run.classes:
        return None
    return dict(zip(run.classes, (run.observed.train == 1).sum(axis=0).tolist(), strict=True))


def _bars(run: Run, precision: ClassPrecision | None) -> list[tuple[str, Markup]]:
    """Bars of all classes in one or two figures, or of the best and the worst."""
    if precision is None or not precision.values:
        return []
    counts = observed_counts(run)
    names = sorted(precision.values, key=lambda name: -precision.values[name])
    if len(names) <= FEW:
        parts = [("", names)]
    elif len(names) <= MANY:
        half = (len(names) + 1) // 2
        parts = [("", names[:half]), ("", names[half:])]
    else:
        parts = [(f"Best {FEW}", names[:FEW]), (f"Worst {FEW}", names[-FEW:])]
    return [
        (
            caption,
            figures.class_bars(
                part,
                [precision.values[name] for name in part],
                [counts.get(name, 0) for name in part] if counts else None,
                name=f"bars-{number}",
            ),
        )
        for number, (caption, part) in enumerate(parts)
    ]


def class_table(run: Run, columns: Sequence[tuple[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Every class with its values, observed positives and positives of the truth; the first column sorts."""
    counts = observed_counts(run)
    scored = run.scored
    actual = (scored.truth == 1).sum(axis=0).tolist() if scored else []
    positives = dict(zip(run.classes, actual, strict=True)) if scored else None
    key: Mapping[str, float] = columns[0][1] if columns else {}
    names = sorted(run.classes, key=lambda name: -key.get(name, -np.inf))
    heads = [head for head, _ in columns]
    heads += ["observed positives"] if counts else []
    heads += [f"positives in {scored.split}"] if scored and scored.complete else []
    rows = []
    for name in names:
        cells = [percent(values.get(name), 1) for _, values in columns]
        cells += [count(counts[name])] if counts else []
        cells += [count(positives[name])] if positives and scored and scored.complete else []
        rows.append((name, cells))
    return {"heads": heads, "rows": rows}


def _confidence(run: Run) -> Markup | None:
    if run.scored is None:
        return None
    counts = figures.confidences(run.scored)
    if not counts:
        return None
    return figures.histogram(counts, name="confidence", top=figures.peak(counts))


def label_figure(run: Run) -> Markup | None:
    """Observed positives per class."""
    if run.observed is None or not run.classes:
        return None
    return figures.count_bars(run.classes, (run.observed.train == 1).sum(axis=0), name="counts")
