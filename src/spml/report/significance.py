"""Significance of differences between methods: a paired bootstrap over test items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spml.errors import UserError
from spml.metrics.bootstrap import RESAMPLES, Comparison, Floats, compare, resampled_map
from spml.report import compare_figures
from spml.report.format import NONE, signed
from spml.report.groups import Group, seeds
from spml.report.measures import class_precision
from spml.runs.run import Run

MOST = 2e9  # largest number of scores times resamples; above it, fewer resamples are drawn
FEWEST = 200
NAMED = 2  # number of named classes with the largest gains and losses

Advance = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Versus:
    """The comparison of a group with the reference.

    Attributes:
        group: the group.
        comparison: difference, interval and p; None if they cannot be computed.
        why_not: reason for a missing comparison.
    """

    group: Group
    comparison: Comparison | None
    why_not: str = ""


def significance(
    groups: Sequence[Group],
    first: Run,
    against: str | None,
    baseline: str,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """Return a row for each group except the reference, and a figure; or the reason for none.

    Args:
        groups: groups in the order of the page.
        first: the first run of the user's list.
        against: name of the reference, a method or a group's label; None for the default.
        baseline: the default method, if it has exactly one group.
        advance: called with the number of resampled runs and their total.
    """
    base = reference(groups, first, against, baseline)
    others = [group for group in groups if group is not base]
    problem = _problem(base) if others else "All runs belong to one method."
    if problem:
        return {"why_not": problem, "base": base.label}
    truth = base.finished[0].test_truth
    reasons = {id(group): _problem(group) or _other(group, base) for group in others}
    usable = [group for group in others if not reasons[id(group)]]
    runs = [run for group in (base, *usable) for run in group.finished]
    assert truth is not None
    wanted = int(np.clip(MOST / max(truth.size * len(runs), 1), FEWEST, RESAMPLES)) if usable else 0
    drawn: dict[int, Floats] = {}
    for number, run in enumerate(runs if usable else (), 1):
        drawn[id(run)] = _resampled(run, wanted)
        if advance is not None:
            advance(number, len(runs))
    rows = [
        Versus(
            group,
            None if (why_not := reasons[id(group)]) else _compare(group, base, drawn),
            why_not,
        )
        for group in others
    ]
    shown = [
        (groups.index(row.group), row.group.label, row.comparison)
        for row in rows
        if row.comparison is not None
    ]
    return {
        "why_not": "" if shown else "; ".join(f"{row.group.label}: {row.why_not}" for row in rows),
        "base": base.label,
        "rows": [_row(row, base, wanted) for row in rows],
        "figure": compare_figures.differences(shown, base.label) if shown else None,
        "resamples": wanted,
        "num_items": len(truth),
    }


def reference(groups: Sequence[Group], first: Run, against: str | None, baseline: str) -> Group:
    """Return the group that the others are compared with."""
    if against is not None:
        matches = [group for group in groups if group.label == against]
        matches = matches or [group for group in groups if group.method == against]
        if len(matches) == 1:
            return matches[0]
        labels = ", ".join(repr(group.label) for group in (matches or groups))
        how_many = "several methods" if matches else "no method"
        raise UserError(f"--against {against}: {how_many} of that name; give one of {labels}")
    named = [group for group in groups if group.method == baseline]
    return named[0] if len(named) == 1 else next(group for group in groups if first in group.runs)


def _problem(group: Group) -> str:
    """Return why a group's test mAP cannot be resampled; empty if it can."""
    if not group.finished:
        return "no finished run"
    for run in group.finished:
        scored = run.scored
        if run.outcome("test_map") is None or run.test_truth is None:
            return "no complete test labels"
        if scored is None or scored.split != "test":
            return "no stored test scores"
        if np.isnan(scored.logits).any():
            return "its scores hold NaN"
    return ""


def _other(group: Group, base: Group) -> str:
    """Return why two groups do not share their test items; empty if they do."""
    truth = base.finished[0].test_truth
    same = all(
        list(run.classes) == list(base.finished[0].classes)
        and np.array_equal(run.test_truth, truth)  # type: ignore[arg-type]
        for run in (*group.finished, *base.finished)
    )
    return "" if same else f"other test labels than {base.label}"


def _resampled(run: Run, resamples: int) -> Floats:
    assert run.scored is not None
    return resampled_map(run.scored.logits, run.scored.truth, resamples)


def _compare(group: Group, base: Group, drawn: dict[int, Floats]) -> Comparison:
    """Compare two groups, each averaged over its runs within each resample."""
    compared = _of_shared_seeds(group, base)
    own, others = (np.mean([drawn[id(run)] for run in part], axis=0) for part in compared)
    figures = [[run.outcome("test_map") or 0.0 for run in part] for part in compared]
    means = [[float(np.mean(part))] for part in figures]
    return compare([own], [others], means[0], means[1])


def _row(row: Versus, base: Group, resamples: int) -> dict[str, Any]:
    shared = _maps_of_shared_seeds(row.group, base)
    won = sum(own > other for own, other in shared)
    cells = {
        "label": row.group.label,
        "why_not": row.why_not,
        "seeds": f"{won} of {len(shared)}" if shared else NONE,
        **_classes(row.group, base),
    }
    if row.comparison is None:
        return cells
    own = row.comparison
    side = _side(own)
    agree = all((a > b) == (own.difference > 0) for a, b in shared)
    verdict = side or "not significant"
    if side and not agree:
        verdict = "seeds disagree"
    least = 2 / (1 + resamples)
    return {
        **cells,
        "difference": signed(own.difference),
        "range": f"{signed(own.low)} to {signed(own.high)}",
        "p": f"≤ {least:.3f}" if own.p <= least else f"{own.p:.3f}",
        "verdict": verdict,
        "sure": bool(side) and agree,
    }


def _side(comparison: Comparison) -> str:
    """Return "better" or "worse" if the interval excludes 0, else an empty string."""
    if comparison.low > 0:
        return "better"
    return "worse" if comparison.high < 0 else ""


def _shared_seeds(group: Group, base: Group) -> set[tuple[str, ...]]:
    """Return the seeds that finished runs of both groups share, including those of the labels."""
    own, others = ({seeds(run) for run in part.finished} for part in (group, base))
    return own & others


def _of_shared_seeds(group: Group, base: Group) -> list[list[Run]]:
    """Return the finished runs of both groups with shared seeds; all runs if they share none."""
    shared = _shared_seeds(group, base)
    return [
        [run for run in part.finished if not shared or seeds(run) in shared]
        for part in (group, base)
    ]


def _maps_of_shared_seeds(group: Group, base: Group) -> list[tuple[float, float]]:
    """Return the test mAPs of both groups for each shared seed."""
    own, others = (
        {seeds(run): run.outcome("test_map") for run in part.finished} for part in (group, base)
    )
    pairs = [(own[seed], others[seed]) for seed in _shared_seeds(group, base)]
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _classes(group: Group, base: Group) -> dict[str, Any]:
    """Count the classes with higher and lower mean AP, and name the largest differences."""
    own, others = (_mean_precision(part) for part in _of_shared_seeds(group, base))
    gaps = {name: own[name] - others[name] for name in own if name in others}
    if not gaps:
        return {"better": None, "worse": None, "most": ""}
    order = sorted(gaps, key=lambda name: -gaps[name])
    most = [name for name in order[:NAMED] if gaps[name] > 0]
    most += [name for name in order[-NAMED:] if gaps[name] < 0 and name not in most]
    return {
        "better": sum(gap > 0 for gap in gaps.values()),
        "worse": sum(gap < 0 for gap in gaps.values()),
        "most": ", ".join(f"{name} {signed(gaps[name], 1)}" for name in most),
    }


def _mean_precision(runs: Sequence[Run]) -> dict[str, float]:
    tables = [ap.values for run in runs if (ap := class_precision(run))]
    names = set.intersection(*(set(values) for values in tables)) if tables else set()
    return {name: float(np.mean([values[name] for values in tables])) for name in sorted(names)}
