"""The one rule for statements: a difference counts when its 95 % interval excludes 0.

The interval is that of `spml.metrics.bootstrap.compare`: over test images, training seeds and, if
the runs have several, draws of the single positives. One seed gives no verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recorded import OPEN, Recorded, interval

from spml.metrics.bootstrap import Comparison
from spml.report.format import signed

YES, PARTLY, NO, EITHER = "agrees", "agrees in part", "does not agree", "undecided"
MAIN, DRAWS, BUDGETS = "Table B", "draws", "equal budgets"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the result of the runs, and the verdict."""

    paper: str
    here: str
    verdict: str


def waiting(paper: str, done: int, every: int) -> Claim:
    return Claim(paper, f"{OPEN} ({done} of {every})", OPEN)


def superlative(signs: Iterable[int]) -> str:
    """The verdict on "more than all others": each difference must count."""
    known = set(signs)
    if -1 in known:
        return NO
    return EITHER if 0 in known else YES


def parts(signs: Iterable[int]) -> str:
    """The verdict on a statement of several differences that each can hold alone."""
    known = set(signs)
    if known == {1}:
        return YES
    if 1 in known:
        return PARTLY
    return NO if -1 in known else EITHER


def gap(known: Recorded, name: str, label: str, base: str) -> Comparison | None:
    """The difference of two complete rows of a table; None without such rows or such a table."""
    if not known.has(name):
        return None
    rows = {row.label: row for row in known.table(known.plan(name), base).rows}
    if any(rows[one].seeds < rows[one].wanted for one in (label, base) if one in rows):
        return None
    return rows[label].versus if {label, base} <= set(rows) else None


def widest(known: Recorded, label: str, base: str) -> Comparison | None:
    """The difference over draws if they were run, else with equal budgets, else from Table B."""
    found = (gap(known, name, label, base) for name in (DRAWS, BUDGETS, MAIN))
    return next((v for v in found if v is not None), None)


def over(v: Comparison) -> str:
    """What the interval covers besides test images."""
    draws = "one draw" if v.draws == 1 else f"{v.draws} draws"
    seeds = v.seeds // v.draws
    return f"{'one seed' if seeds == 1 else f'{seeds} seeds'}, {draws}"


def against_paper(v: Comparison, lead: float, name: str = "the paper's") -> str:
    """The difference, and whether it excludes the lead that the paper has."""
    inside = "inside" if v.low <= lead <= v.high else "outside"
    return f"{interval(v)} ({name} {signed(lead)} lies {inside})"
