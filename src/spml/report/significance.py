"""Significance of differences between methods, over test items, seeds and draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spml.errors import UserError
from spml.metrics.bootstrap import (
    RESAMPLES,
    Comparison,
    Floats,
    Measured,
    compare,
    resampled_map,
)
from spml.report import compare_figures
from spml.report.format import NONE, chance, signed
from spml.report.groups import Group, seeds
from spml.report.measures import class_precision
from spml.runs.run import Run

MOST = 2e9  # largest number of scores times resamples; above it, fewer resamples are drawn
FEWEST = 200
NAMED = 2  # number of named classes with the largest gains and losses

Advance = Callable[[int, int], None]


def significance(
    groups: Sequence[Group],
    first: Run,
    against: str | None,
    baseline: str,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """Return a row for each group except the reference, and a figure; or the reason for none.

    The reference is `against`, a method or a group's label; by default the baseline if it has
    exactly one group, else the group of the user's first run.
    """
    base = reference(groups, first, against, baseline)
    others = [group for group in groups if group is not base]
    problem = _problem(base) if others else "All runs belong to one method."
    if problem:
        return {"why_not": problem, "base": base.label}
    reasons = [_problem(group) or _other(group, base) for group in others]
    usable = [group for group, reason in zip(others, reasons, strict=True) if not reason]
    if not usable:
        named = [f"{group.label}: {why}" for group, why in zip(others, reasons, strict=True)]
        return {"why_not": "; ".join(named), "base": base.label}
    truth = base.finished[0].test_truth
    assert truth is not None
    runs = [run for group in (base, *usable) for run in group.finished]
    resamples = int(np.clip(MOST / max(truth.size * len(runs), 1), FEWEST, RESAMPLES))
    drawn = _drawn(runs, resamples, advance)
    rows, shown = [], []
    for group, reason in zip(others, reasons, strict=True):
        pairs, parts = _paired_maps(group, base), _of_shared_seeds(group, base)
        won = sum(own > other for own, other in pairs)
        seeds_won = f"{won} of {len(pairs)}" if pairs else NONE
        row = {"label": group.label, "why_not": reason, "seeds": seeds_won, **_classes(*parts)}
        if not reason:
            own, rivals = ([_measured(run, drawn) for run in part] for part in parts)
            comparison = compare(own, rivals)
            shown.append((groups.index(group), group.label, comparison))
            row |= _verdict(comparison)
        rows.append(row)
    return {
        "why_not": "",
        "base": base.label,
        "rows": rows,
        "figure": compare_figures.differences(shown, base.label),
        "resamples": resamples,
        "num_items": len(truth),
    }


def _drawn(runs: Sequence[Run], resamples: int, advance: Advance | None) -> dict[int, Floats]:
    """Return the resampled mAPs of each run by its id()."""
    drawn: dict[int, Floats] = {}
    for number, run in enumerate(runs, 1):
        assert run.scored is not None
        drawn[id(run)] = resampled_map(run.scored.logits, run.scored.truth, resamples)
        if advance is not None:
            advance(number, len(runs))
    return drawn


def _measured(run: Run, drawn: dict[int, Floats]) -> Measured:
    seed, *draw = seeds(run)
    return Measured(tuple(draw), seed, run.outcome("test_map") or 0.0, drawn[id(run)])


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


def _verdict(own: Comparison) -> dict[str, Any]:
    """Return the cells of a comparison."""
    unsure = "one seed" if own.p is None else "not significant"
    return {
        "difference": signed(own.difference),
        "range": f"{signed(own.low)} to {signed(own.high)}",
        "p": NONE if own.p is None else chance(own.p).removeprefix("p ").removeprefix("= "),
        "verdict": {1: "better", -1: "worse"}.get(own.sign, unsure),
        "sure": own.sign != 0,
    }


def _of_shared_seeds(group: Group, base: Group) -> list[list[Run]]:
    """Return the finished runs of both groups with shared seeds; all runs if they share none."""
    shared = set(map(seeds, group.finished)) & set(map(seeds, base.finished))
    return [
        [run for run in part.finished if not shared or seeds(run) in shared]
        for part in (group, base)
    ]


def _paired_maps(group: Group, base: Group) -> list[tuple[float, float]]:
    """Return the test mAPs of both groups for each shared seed."""
    others = {seeds(run): run.outcome("test_map") for run in base.finished}
    pairs = [(run.outcome("test_map"), others.get(seeds(run))) for run in group.finished]
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _classes(*parts: Sequence[Run]) -> dict[str, Any]:
    """Count the classes with higher and lower mean AP, and name the largest differences."""
    own, others = map(_mean_precision, parts)
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
