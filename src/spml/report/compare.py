"""The values of a comparison page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from spml.report import compare_figures, figures, format
from spml.report.format import chosen_by, count, duration, missing, percent, selection, setting
from spml.report.groups import BASELINE, Group, group_runs, result_table, seeds
from spml.report.measures import class_precision
from spml.report.run_page import MANY, class_table, label_figure, observed_counts
from spml.report.significance import Advance, significance
from spml.runs.run import Run

SHOWN = 30  # classes in the figure if there are more than MANY
COMPARED = {  # settings that comparable runs share
    "data": "data sets",
    "backbone": "backbones",
    "selection": "ways to choose the epoch",
}


def compare_page(
    runs: Sequence[Run],
    title: str | None,
    against: str | None = None,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """Return the values of the template; the arguments are those of `write_report`."""
    groups = group_runs(runs)
    data, kinds = _distinct(runs, "data"), _distinct(runs, "selection")
    ordered = [run for group in groups for run in group.runs]
    same = len({run.observed.sha256 if run.observed else None for run in runs}) == 1
    table = result_table(
        groups,
        comparable=len(data) == 1,
        val_figure=chosen_by(kinds),
        selection=selection(runs[0].fact("selection")) if len(kinds) == 1 else None,
    )
    methods = len({group.method for group in groups})
    words = f"{len(groups)} {'methods' if methods == len(groups) else 'variants'}"
    facts = [*data, *_distinct(runs, "backbone"), words, f"{len(runs)} runs"]
    return {
        "title": title or f"{words} on {', '.join(data)}",
        "subtitle": " · ".join(facts),
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
        "labels": format.label_facts(runs[0].observed) if same and runs[0].observed else [],
        "label_figure": label_figure(runs[0]) if same else None,
        "settings": format.setting_tables(*runs),
        "differing": format.differing_settings(ordered, hashes=False),
        "hashes": format.differing_settings(ordered, hashes=True),
        "commands": [line for run in ordered if (line := run.config.get("command"))],
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
    for key, words in COMPARED.items():
        values = _distinct(runs, key)
        if len(values) > 1:
            warnings.append(
                f"These runs use different {words} ({', '.join(values)}): "
                "their numbers are not comparable."
            )
    drawn = {
        frozenset(run.observed.sha256 for run in group.runs if run.observed) for group in groups
    }
    if len(drawn - {frozenset()}) > 1:
        warnings.append(
            "These runs trained on different observed labels (their SHA-256 differ): "
            "they differ by more than the method."
        )
    return warnings + [
        f"{group.label}: several runs have the same seed, so the deviation is too small."
        for group in groups
        if len(set(map(seeds, group.runs))) < len(group.runs)
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
    """Return AP of each class by group over finished runs; None if classes or labels differ."""
    done = any(group.finished for group in groups)
    # before any run has finished, all are shown in their present state
    counted = [group.finished if done else group.runs for group in groups]
    measured = [[ap for run in part if (ap := class_precision(run))] for part in counted]
    bases = {ap.basis for part in measured for ap in part}
    lists = {tuple(run.classes) for group in groups for run in group.runs}
    if len(bases) != 1 or len(lists) != 1:
        return None
    (names,) = lists
    columns = {
        group.label: {
            name: float(np.mean(values))
            for name in names
            if (values := [ap.values[name] for ap in part if name in ap.values])
        }
        for group, part in zip(groups, measured, strict=True)
    }
    chosen = list(names)
    if len(names) > MANY:
        known = {name: [row[name] for row in columns.values() if name in row] for name in names}
        chosen = sorted(names, key=lambda name: -np.ptp(known[name] or [0.0]))[:SHOWN]
    chosen.sort(key=lambda name: -np.mean([row.get(name, 0.0) for row in columns.values()]))
    first = next(run for part in counted for run in part)
    return {
        "figure": compare_figures.dots(chosen, columns, observed_counts(first), name="dots"),
        "table": class_table(first, columns),
        "basis": bases.pop(),
        "many": len(names) > MANY,
        "shown": SHOWN,
    }


def _confidence(groups: Sequence[Group]) -> list[tuple[str, Markup]]:
    """Return a histogram of each group's first run with scores, all on one count axis."""
    histograms = {}
    for group in groups:
        scored = next((run.scored for run in group.runs if run.scored), None)
        if scored is not None and (counts := figures.confidences(scored)):
            histograms[group.label] = counts
    top = max(map(figures.peak, histograms.values()), default=1.0)
    return [
        (label, figures.histogram(counts, name=f"confidence-{number}", top=top, width=330))
        for number, (label, counts) in enumerate(histograms.items())
    ]
