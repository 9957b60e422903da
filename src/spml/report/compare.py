"""The values of a comparison page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from spml.report import compare_figures, figures, format
from spml.report.format import (
    chosen_by,
    count,
    duration,
    label_facts,
    missing,
    percent,
    selection,
    setting,
)
from spml.report.groups import Group, group_runs, seeds
from spml.report.measures import class_precision
from spml.report.results import BASELINE, result_table
from spml.report.run_page import MANY, class_table, label_figure, observed_counts
from spml.report.significance import Advance, significance
from spml.runs.run import Run

SHOWN = 30  # classes in the figure if there are more than MANY


def compare_page(
    runs: Sequence[Run],
    title: str | None,
    against: str | None = None,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """Return the values of the template.

    Args:
        runs: runs to compare.
        title: heading; None makes one from methods and data set.
        against: the method that the others are compared with.
        advance: called with the number of resampled runs and their total.
    """
    groups = group_runs(runs)
    data = _distinct(runs, "data")
    ordered = [run for group in groups for run in group.runs]
    names, rows = format.differing_settings(ordered)
    kinds = _distinct(runs, "selection")
    same = len({run.observed.sha256 if run.observed else None for run in runs}) == 1
    table = result_table(
        groups,
        comparable=len(data) == 1,
        val_figure=chosen_by(kinds),
        selection=selection(runs[0].fact("selection")) if len(kinds) == 1 else None,
    )
    methods = len({group.method for group in groups})
    words = f"{len(groups)} {'methods' if methods == len(groups) else 'variants'}"
    facts = [*data, *_distinct(runs, "backbone")]
    return {
        "title": title or f"{words} on {', '.join(data)}",
        "subtitle": " · ".join([*facts, words, f"{len(runs)} runs"]),
        "warnings": _warnings(runs, groups),
        "notes": _notes(ordered),
        "tables": [table],
        "sure": significance(groups, runs[0], against, BASELINE, advance),
        "val_figure": chosen_by(kinds),
        "runs": [_run_row(group, run) for group in groups for run in group.runs],
        "curve": compare_figures.curves(groups, "val_map", f"validation {chosen_by(kinds)}, %"),
        "losses": [
            (group.label, figure)
            for number, group in enumerate(groups)
            if (figure := compare_figures.small_curve(group, number, "loss"))
        ],
        "classes": _classes(groups),
        "confidence": _confidence(groups),
        "same_labels": same,
        "labels": label_facts(runs[0].observed) if same and runs[0].observed else [],
        "label_figure": label_figure(runs[0]) if same else None,
        "settings": format.setting_tables(format.shared_settings(runs)),
        "differing": {
            "names": names,
            "rows": list(zip([run.name for run in ordered], rows, strict=True)),
        },
        "commands": [(run.name, line) for run in ordered if (line := format.train_command(run))],
    }


def _distinct(runs: Sequence[Run], key: str) -> list[str]:
    return list(dict.fromkeys(setting(run.fact(key)) for run in runs))


def _notes(runs: Sequence[Run]) -> list[str]:
    """Return notes on missing files, each with the names of the runs that lack them."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for note in missing(run):
            names.setdefault(note, []).append(run.name)
    return [f"{', '.join(lacking)}: {note}" for note, lacking in names.items()]


def _warnings(runs: Sequence[Run], groups: Sequence[Group]) -> list[str]:
    """Return the reasons why these runs may not be comparable."""
    warnings = []
    for key, words in (
        ("data", "data sets"),
        ("backbone", "backbones"),
        ("selection", "ways to choose the epoch"),
    ):
        values = _distinct(runs, key)
        if len(values) > 1:
            warnings.append(
                f"These runs use different {words} ({', '.join(values)}): "
                "their numbers are not comparable."
            )
    drawn = {
        frozenset(run.observed.sha256 for run in group.runs if run.observed) for group in groups
    } - {frozenset()}
    if len(drawn) > 1:
        warnings.append(
            "These runs trained on different observed labels (their SHA-256 differ): "
            "they differ by more than the method."
        )
    repeated = [
        group.label for group in groups if len({seeds(run) for run in group.runs}) < len(group.runs)
    ]
    return warnings + [
        f"{name}: several runs have the same seed, so the deviation is too small."
        for name in repeated
    ]


def _run_row(group: Group, run: Run) -> list[str]:
    return [
        run.name,
        group.label,
        setting(run.fact("seed")),
        count(run.best_epoch),
        percent(run.val_map),
        percent(run.outcome("test_map")),
        duration(run.outcome("seconds")),
        count(run.outcome("images_per_second")),
    ]


def _classes(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Return AP of each class by group, averaged over finished runs.

    None if the runs have different classes or kinds of labels.
    """
    done = any(
        group.finished for group in groups
    )  # before that, show all runs in their present state
    counted = [group.finished if done else group.runs for group in groups]
    measured = [[ap for run in part if (ap := class_precision(run))] for part in counted]
    bases = {ap.basis for part in measured for ap in part}
    names = next((run.classes for group in groups for run in group.runs if run.classes), ())
    if len(bases) != 1 or any(
        list(run.classes) != list(names) for group in groups for run in group.runs
    ):
        return None
    columns = []
    for group, part in zip(groups, measured, strict=True):
        lists = {name: [ap.values[name] for ap in part if name in ap.values] for name in names}
        columns.append(
            (
                group.label,
                {name: float(np.mean(values)) for name, values in lists.items() if values},
            )
        )
    spans = {
        name: np.ptp([row[name] for _, row in columns if name in row] or [0.0]) for name in names
    }
    mean = {name: np.mean([row.get(name, 0.0) for _, row in columns]) for name in names}
    many = len(names) > MANY
    chosen = sorted(names, key=lambda name: -spans[name])[:SHOWN] if many else list(names)
    chosen.sort(key=lambda name: -mean[name])
    first = next(run for part in counted for run in part)
    figure = compare_figures.dots(chosen, columns, observed_counts(first), name="dots")
    return {
        "figure": figure,
        "table": class_table(first, columns),
        "basis": bases.pop(),
        "many": many,
        "shown": SHOWN,
    }


def _confidence(groups: Sequence[Group]) -> list[tuple[str, Markup]]:
    """Return a histogram of each group's first run with scores, all on one count axis."""
    first = [
        (group, next((run.scored for run in group.runs if run.scored), None)) for group in groups
    ]
    histograms = [(group, figures.confidences(scored)) for group, scored in first if scored]
    histograms = [(group, counts) for group, counts in histograms if counts]
    top = max((figures.peak(counts) for _, counts in histograms), default=1.0)
    return [
        (group.label, figures.histogram(counts, name=f"confidence-{number}", top=top, width=330))
        for number, (group, counts) in enumerate(histograms)
    ]
