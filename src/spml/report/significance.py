"""Whether methods differ by more than the choice of test images: a paired bootstrap against one of them."""

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

MOST = 2e9  # scores times resamples, above which fewer are drawn
FEWEST = 200
NAMED = 2  # classes gained and lost most

Advance = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Versus:
    """A group beside the one it is compared with.

    Attributes:
        group: compared.
        found: difference, interval and p; None where they cannot be computed.
        why_not: the reason, in words.
    """

    group: Group
    found: Comparison | None
    why_not: str = ""


def significance(
    groups: Sequence[Group],
    first: Run,
    against: str | None,
    baseline: str,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """A row for each group but the reference, with a figure; words where nothing can be compared.

    Args:
        groups: in the order of the page.
        first: the run that was given first.
        against: name of the reference, a method or a group's label; None for the default.
        baseline: the method that is the default, where it has one group.
        advance: told how many runs were resampled, and of how many.
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
        (groups.index(row.group), row.group.label, row.found)
        for row in rows
        if row.found is not None
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
    """The group that others are compared with."""
    if against is not None:
        found = [group for group in groups if group.label == against]
        found = found or [group for group in groups if group.method == against]
        if len(found) == 1:
            return found[0]
        labels = ", ".join(repr(group.label) for group in (found or groups))
        how_many = "several methods" if found else "no method"
        raise UserError(f"--against {against}: {how_many} of that name; give one of {labels}")
    named = [group for group in groups if group.method == baseline]
    return named[0] if len(named) == 1 else next(group for group in groups if first in group.runs)


def _problem(group: Group) -> str:
    """Why a group's test mAP cannot be resampled; empty where it can."""
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
    """Why two groups are not about the same test items; empty where they are."""
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
    """Runs of a group are averaged within each resample of the items, so that a group counts once."""
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
    if row.found is None:
        return cells
    found = row.found
    side = "better" if found.low > 0 else "worse" if found.high < 0 else ""
    agree = all((own > other) == (found.difference > 0) for own, other in shared)
    least = 2 / (1 + resamples)
    return {
        **cells,
        "difference": signed(found.difference),
        "range": f"{signed(found.low)} to {signed(found.high)}",
        "p": f"≤ {least:.3f}" if found.p <= least else f"{found.p:.3f}",
        "verdict": side if side and agree else "seeds disagree" if side else "not told apart",
        "sure": bool(side) and agree,
    }


def _shared_seeds(group: Group, base: Group) -> set[tuple[str, ...]]:
    """Those that finished runs of both have; a seed with another draw of observed labels is another one."""
    own, others = ({seeds(run) for run in part.finished} for part in (group, base))
    return own & others


def _of_shared_seeds(group: Group, base: Group) -> list[list[Run]]:
    """Finished runs of both with the seeds that both have; all of them where they have none in common."""
    shared = _shared_seeds(group, base)
    return [
        [run for run in part.finished if not shared or seeds(run) in shared]
        for part in (group, base)
    ]


def _maps_of_shared_seeds(group: Group, base: Group) -> list[tuple[float, float]]:
    """Test mAP of both for each seed that both have."""
    own, others = (
        {seeds(run): run.outcome("test_map") for run in part.finished} for part in (group, base)
    )
    pairs = [(own[seed], others[seed]) for seed in _shared_seeds(group, base)]
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _classes(group: Group, base: Group) -> dict[str, Any]:
    """In how many classes the group's mean AP is higher or lower, and where most."""
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
    found = [ap.values for run in runs if (ap := class_precision(run))]
    names = set.intersection(*(set(values) for values in found)) if found else set()
    return {name: float(np.mean([values[name] for values in found])) for name in sorted(names)}
