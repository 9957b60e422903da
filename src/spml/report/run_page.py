"""The HTML page of one run, and `write_report`, which also writes the page of a comparison."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from spml.errors import UserError
from spml.files import replacing
from spml.report import figures, format
from spml.report.examples import NOT_ASKED, Pictures, examples, find_pictures, suspects
from spml.report.format import NONE, chosen_by, count, duration, percent, selection, setting
from spml.report.measures import ClassPrecision, class_precision, most_missed, threshold_effects
from spml.report.probabilities import calibration, read_model
from spml.runs.names import REPORT
from spml.runs.run import Run

if TYPE_CHECKING:
    from spml.data import Experiment

EXAMPLES = 8  # pictures
FEW, MANY = 20, 40  # classes in one figure; classes in two


def write_report(
    runs: Sequence[Path],
    out: Path,
    title: str | None = None,
    *,
    data: Experiment | None = None,
    root: Path | None = None,
    pictures: int = EXAMPLES,
    against: str | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the HTML page of one run folder, or of a comparison of several.

    Args:
        runs: run folders.
        out: the page; an existing file is replaced once the new page is complete.
        title: heading; default: method and data set.
        data: data of a single run if they are already loaded; otherwise pictures are read again.
        root: folder of the data's files; default: the folder used in training.
        pictures: number of example items of a single run; 0 shows no picture at all.
        against: method that others are compared with; default: `an`, or else the first run's.
        advance: called with the number of resampled runs and their total.
    """
    if not runs:
        raise UserError("give at least one run folder to report on")
    places = list(map(os.path.realpath, runs))  # survives a loop of links
    for folder, place in zip(runs, places, strict=True):
        if places.count(place) > 1:
            raise UserError(f"{folder} is given twice")
    loaded = list(map(Run.read, runs))
    if len(loaded) == 1:
        page = format.render("run.html", run_page(loaded[0], title, pictures, data, root))
    else:
        from spml.report.compare import compare_page

        page = format.render("compare.html", compare_page(loaded, title, against, advance))
    if out.is_dir():
        raise UserError(f"{out} is a folder; name a file such as {out / REPORT}")
    with replacing(out) as beside:
        beside.write_bytes(page.encode("utf-8", "replace"))
    return out


def run_page(
    run: Run, title: str | None, number: int, data: Experiment | None, root: Path | None
) -> dict[str, Any]:
    """The template's values; the arguments are those of `write_report`."""
    precision, model = class_precision(run), read_model(run)
    pictures = find_pictures(run, model, data, root) if number else Pictures(NOT_ASKED)
    shown, suspected = examples(run, model, pictures, number), suspects(run, model, pictures)
    facts = [setting(fact) for key in ("data", "backbone") if (fact := run.fact(key)) is not None]
    return {
        "title": title or f"{run.method} on {setting(run.fact('data') or 'unnamed data')}",
        "subtitle": " · ".join([run.name, *facts, f"seed {setting(run.fact('seed'))}"]),
        "notes": format.missing(run),
        "cards": _cards(run),
        "estimated": run.fact("selection") == "observed",
        "race": race(run),
        "improving": improving(run),
        "curves": learning_curves(run),
        "history": _history(run),
        "precision": precision,
        "bars": _bars(run, precision),
        "class_table": class_table(run, {"AP, %": precision.values} if precision else {}),
        "few": len(run.classes) <= FEW,
        "confidence": _confidence(run),
        "split": run.scored.split if run.scored else None,
        "complete": run.scored.complete if run.scored else None,
        "calibration": calibration(run, model),
        "cutoffs": threshold_effects(run, model),
        "missed": most_missed(run, model),
        "examples": shown,
        "suspects": suspected,
        "unread": pictures.unread,
        "labels": format.label_facts(run.observed) if run.observed else [],
        "label_figure": label_figure(run),
        "settings": format.setting_tables(run),
        "command": run.config.get("command"),
    }


def _cards(run: Run) -> list[tuple[str, str, str]]:
    """Headline numbers: name, value and a line below it."""
    epochs, kind = run.fact("epochs"), run.fact("selection")
    so_far = "" if run.result else ", so far"
    test = run.outcome("test_map")
    speed = count(run.outcome("images_per_second"))
    device = run.fact("device")
    where = f" on {device}" if device else ""
    train, num_val = NONE, None
    if run.observed is not None:
        train, num_val = count(len(run.observed.train)), run.observed.num_val
    if run.val_truth is not None:
        num_val = len(run.val_truth)
    held = [f"{count(num_val)} validation"] if num_val is not None else []
    held += [f"{count(len(run.test_truth))} test"] if run.test_truth is not None else []
    measured = "percent, at the chosen epoch" if test is not None else "not measured"
    of = f"of {setting(epochs)}{so_far}" if epochs is not None else ""
    rate = f"{speed} images per second{where}" if speed != NONE else ""
    chosen = f"epoch chosen on {selection(kind)}{so_far}"
    return [
        ("Test mAP", percent(test), measured),
        (f"Validation {chosen_by([kind])}", percent(run.val_map), chosen),
        ("Best epoch", count(run.best_epoch), of),
        ("Training items", train, " · ".join(held)),
        ("Classes", count(len(run.classes) or None), ""),
        ("Time", duration(run.outcome("seconds")), rate),
    ]


def race(run: Run) -> dict[str, Any] | None:
    """Rows of the race that chose the method, the best first; None if there was none."""
    record = run.race
    if record is None or not record.get("winner"):
        return None
    entries = [one for one in record["candidates"] if one["outcome"]]
    entries.sort(key=lambda one: (one["epochs"] < record["epochs"], -(one["score"] or 0.0)))
    return {**record, "rows": [{**one, "score": percent(one["score"], 1)} for one in entries]}


def improving(run: Run) -> bool:
    """Whether the last epoch of a finished run was its best: it may have ended too early."""
    epochs = [epoch for epoch in run.curve("val_map") if epoch > 0]
    return run.result is not None and len(epochs) > 1 and run.best_epoch == max(epochs)


def learning_curves(run: Run) -> list[Markup]:
    """Curves of the loss and of the validation figure with the chosen epoch."""
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


def observed_counts(run: Run) -> dict[str, int]:
    """Observed positives of each class in training; empty if they are not stored."""
    if run.observed is None or not run.classes:
        return {}
    return dict(zip(run.classes, run.observed.counts, strict=True))


def _bars(run: Run, precision: ClassPrecision | None) -> list[tuple[str, Markup]]:
    """Bars of all classes in one or two figures, or of the best and the worst of many."""
    if precision is None or not precision.values:
        return []
    counts = observed_counts(run)
    names = sorted(precision.values, key=lambda name: -precision.values[name])
    half = (len(names) + 1) // 2
    parts = [("", names[:half]), ("", names[half:])]
    if len(names) <= FEW:
        parts = [("", names)]
    elif len(names) > MANY:
        parts = [(f"Best {FEW}", names[:FEW]), (f"Worst {FEW}", names[-FEW:])]
    return [
        (caption, figures.class_bars(part, precision.values, counts, name=f"bars-{number}"))
        for number, (caption, part) in enumerate(parts)
    ]


def class_table(run: Run, columns: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """A row for each class, sorted by the first column: its values, observed and true positives."""
    counts, scored = observed_counts(run), run.scored
    heads = [*columns]
    extra = []
    if counts:
        heads.append("observed positives")
        extra.append(counts)
    if scored is not None and scored.complete:
        heads.append(f"positives in {scored.split}")
        actual = (scored.truth == 1).sum(axis=0).tolist()
        extra.append(dict(zip(run.classes, actual, strict=True)))
    key = next(iter(columns.values()), {})
    names = sorted(run.classes, key=lambda name: -key.get(name, -np.inf))
    rows = []
    for name in names:
        cells = [percent(values.get(name), 1) for values in columns.values()]
        rows.append((name, [*cells, *(count(part[name]) for part in extra)]))
    return {"heads": heads, "rows": rows}


def _confidence(run: Run) -> Markup | None:
    counts = figures.confidences(run.scored) if run.scored else {}
    if not counts:
        return None
    return figures.histogram(counts, name="confidence", top=figures.peak(counts))


def label_figure(run: Run) -> Markup | None:
    """Observed positives per class."""
    counts = observed_counts(run)
    return figures.count_bars(counts, name="counts") if counts else None
