"""What the page of several runs shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from spml.report import compare_figures, figures, format
from spml.report.format import (
    NONE,
    chosen_by,
    count,
    duration,
    label_facts,
    missing,
    percent,
    selection,
    setting,
    signed,
)
from spml.report.groups import Group, Summary, group_runs, seeds
from spml.report.measures import class_precision
from spml.report.run_page import MANY, class_table, label_figure, observed_counts
from spml.report.significance import Advance, significance
from spml.runs.run import Run

SHOWN = 30  # classes in the figure where there are more than MANY
BASELINE, BOUND = "an", "full"


def compare_page(
    runs: Sequence[Run],
    title: str | None,
    against: str | None = None,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """The template's values.

    Args:
        runs: to compare, in the order they were given.
        title: heading in place of one made from methods and data set.
        against: the method that others are compared with.
        advance: told how many runs were resampled, and of how many.
    """
    groups = group_runs(runs)
    data = _distinct(runs, "data")
    ordered = [run for group in groups for run in group.runs]
    names, rows = format.differing_settings(ordered)
    kinds = _distinct(runs, "selection")
    same = len({run.observed.sha256 if run.observed else None for run in runs}) == 1
    words = f"{len(groups)} {'methods' if len({group.method for group in groups}) == len(groups) else 'variants'}"
    facts = [*data, *_distinct(runs, "backbone")]
    return {
        "title": title or f"{words} on {', '.join(data)}",
        "subtitle": " · ".join([*facts, words, f"{len(runs)} runs"]),
        "warnings": _warnings(runs, groups),
        "notes": _notes(ordered),
        "results": results(groups, comparable=len(data) == 1, one_selection=len(kinds) == 1),
        "sure": significance(groups, runs[0], against, BASELINE, advance),
        "val_figure": chosen_by(kinds),
        "selection": selection(runs[0].fact("selection")) if len(kinds) == 1 else None,
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
    """What is missing, with the names of the runs that lack it."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for note in missing(run):
            names.setdefault(note, []).append(run.name)
    return [f"{', '.join(lacking)}: {note}" for note, lacking in names.items()]


def _warnings(runs: Sequence[Run], groups: Sequence[Group]) -> list[str]:
    """Why these runs may not be comparable."""
    warnings = []
    for key, words in (
        ("data", "data sets"),
        ("backbone", "backbones"),
        ("selection", "ways to choose the epoch"),
    ):
        found = _distinct(runs, key)
        if len(found) > 1:
            warnings.append(
                f"These runs use different {words} ({', '.join(found)}): their numbers do not compare."
            )
    drawn = {
        frozenset(run.observed.sha256 for run in group.runs if run.observed) for group in groups
    } - {frozenset()}
    if len(drawn) > 1:
        warnings.append(
            "These runs saw different observed labels (their SHA-256 differ): methods differ by more than the method."
        )
    repeated = [
        group.label for group in groups if len({seeds(run) for run in group.runs}) < len(group.runs)
    ]
    return warnings + [
        f"{name}: several runs have the same seed, so the deviation is too small."
        for name in repeated
    ]


def results(groups: Sequence[Group], *, comparable: bool, one_selection: bool) -> dict[str, Any]:
    """A row per group; the best test and validation figures are marked where the runs compare."""
    key = "test" if any(group.test.num for group in groups) else "val"
    baselines = [group for group in groups if group.method == BASELINE]
    base = getattr(baselines[0], key).mean if comparable and len(baselines) == 1 else None
    rivals = (
        [group for group in groups if group.method != BOUND]
        if comparable and len(groups) > 1
        else []
    )
    best = {
        "test": _best([group.test for group in rivals]),
        "val": _best([group.val for group in rivals]) if one_selection else None,
    }
    rows = []
    for group in groups:
        own = getattr(group, key).mean
        difference = None if base is None or own is None or group is baselines[0] else own - base
        row = {
            "label": group.label,
            "bound": group.method == BOUND,
            "difference": signed(difference),
        }
        for name, summary in (("test", group.test), ("val", group.val)):
            row[name] = _spread(summary)
            row[f"{name}_best"] = (
                summary.mean is not None and group in rivals and percent(summary.mean) == best[name]
            )
        row["seeds"] = str(len(group.finished))
        row["open"] = len(group.runs) - len(group.finished)
        row["selection"] = str(group.runs[0].fact("selection") or NONE)
        rows.append(row)
    return {
        "rows": rows,
        "has_base": base is not None,
        "key": key,
        "ranked": bool(rivals),
        "mixed_selection": not one_selection,
    }


def _best(summaries: Sequence[Summary]) -> str | None:
    means = [summary.mean for summary in summaries if summary.mean is not None]
    return percent(max(means)) if means else None


def _spread(summary: Summary) -> str:
    return percent(summary.mean) + (f" ± {percent(summary.std)}" if summary.std is not None else "")


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
    """AP of each class by group, averaged over runs that are done; None where the runs have no classes in common."""
    done = any(group.finished for group in groups)  # while none is, all are shown as they stand
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
    """Histograms of each group's first run that has scores, all on one count axis."""
    first = [
        (group, next((run.scored for run in group.runs if run.scored), None)) for group in groups
    ]
    found = [(group, figures.confidences(scored)) for group, scored in first if scored]
    found = [(group, counts) for group, counts in found if counts]
    top = max((figures.peak(counts) for _, counts in found), default=1.0)
    return [
        (group.label, figures.histogram(counts, name=f"confidence-{number}", top=top, width=330))
        for number, (group, counts) in enumerate(found)
    ]
