"""The candidates of `--method auto`, the first being the safest, and what a race records."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from spml.train.resolve import GR_FLAT, GR_STEEP

GR_NARROW: dict[str, Any] = {
    "w": [0.0, 2.5],
    "b": [-2.0, -2.0],
    "mu": [0.5, 0.1],
    "sigma": [2.0, 0.1],
}


@dataclass(frozen=True)
class Candidate:
    """A method with options.

    Attributes:
        name: in tables, and of its folder with "-" for spaces.
        method: name of the method.
        options: of the method; the others have their defaults.
    """

    name: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)


def portfolio(positives: float) -> list[Candidate]:
    """Return the candidates.

    The first two train to the end in every race with three finalists: `ll_r` stays close to
    assume-negative where that is right, `em` departs from it most. docs/selection.md shows how the
    two and the order were chosen.

    Args:
        positives: estimated mean number of positives of an item, for `epr`.
    """
    return [
        Candidate("ll_r", "ll_r"),
        Candidate("em 0.2", "em", {"alpha": 0.2}),
        Candidate("wan", "wan"),
        Candidate("em 0.05", "em", {"alpha": 0.05}),
        Candidate("gr steep", "gr", GR_STEEP),
        Candidate("gr flat", "gr", GR_FLAT),
        Candidate("gr narrow", "gr", GR_NARROW),
        Candidate("epr", "epr", {"expected_positives": round(positives, 2)}),
        Candidate("an", "an"),
    ]


@dataclass
class Entry:
    """What a race knows about a candidate.

    Attributes:
        candidate: the method with its options.
        epochs: of its longest schedule.
        share: of the training rows in that schedule.
        score: in points; None before it is scored.
        lead: over the winner, in points, among those trained to the end.
        error: standard error of the lead.
        cost: of all its training, in epochs over the training rows.
        outcome: "winner", or why it was dropped.
    """

    candidate: Candidate
    epochs: int = 0
    share: float = 1.0
    score: float | None = None
    lead: float | None = None
    error: float | None = None
    cost: float = 0.0
    outcome: str = ""

    def as_record(self) -> dict[str, Any]:
        """Return the entry of race.json."""
        own = {name: value for name, value in vars(self).items() if name != "candidate"}
        return {**vars(self.candidate), **own}


def table(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the lines of a table of the candidates: score, cost and outcome."""
    yield f"{'candidate':<12}{'score':>8}{'epochs':>9}  outcome"
    for entry in entries:
        score = "" if entry.score is None else f"{entry.score:.1f}"
        if not entry.outcome and entry.score is None:
            continue
        yield f"{entry.candidate.name:<12}{score:>8}{entry.cost:>9.1f}  {entry.outcome}"
