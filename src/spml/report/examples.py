"""Items with what the model says of them: the best, typical ones and the worst."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.report.model import Array, Model
from spml.report.pictures import Pictures
from spml.runs.run import Run, Scored

SHARES = {"best": 0.25, "typical": 0.25, "worst": 0.5}  # of the pictures
TAGS = 6  # lines below a picture
RIGHT, WRONG, UNKNOWN, MISSED = "right", "wrong", "unknown", "missed"
MARKS = {RIGHT: "✓", WRONG: "✗", UNKNOWN: "?", MISSED: "–"}


@dataclass(frozen=True)
class Tag:
    """A class that an item was given, or should have been.

    Attributes:
        kind: "right", "wrong", "unknown" or "missed".
        name: of the class.
        probability: that the model gives.
    """

    kind: str
    name: str
    probability: float

    @property
    def mark(self) -> str:
        """The kind in one character."""
        return MARKS[self.kind]


def examples(run: Run, model: Model, pictures: Pictures, number: int) -> dict[str, Any] | None:
    """Cards of so many items; None without scores or items to judge them by."""
    scored = run.scored
    if scored is None or not scored.usable or number < 1:
        return None
    why_not = pictures.reason(scored.split)
    if why_not:
        return {"why_not": why_not, "cards": [], "complete": scored.complete, "split": scored.split}
    p, tagged = model.probabilities(scored.logits), model.tagged(scored.logits)
    cards = []
    for kind, row in choose(
        surprise(model.logits(scored.logits), scored.truth), scored.truth, number
    ):
        uri = pictures.uri(scored.split, row)
        if not uri:
            continue
        tags = _tags(run, scored, p[row], tagged[row], row)
        cards.append(
            {
                "kind": kind,
                "uri": uri,
                "item": pictures.name(scored.split, row),
                "labels": [run.classes[c] for c in np.flatnonzero(scored.truth[row] == 1).tolist()],
                "tags": tags[:TAGS],
                "more": max(0, len(tags) - TAGS),
            }
        )
    return {"why_not": "", "cards": cards, "complete": scored.complete, "split": scored.split}


def surprise(logits: Array, truth: npt.NDArray[np.int8]) -> Array:
    """Mean negative log likelihood of an item's known labels; not a number where none is known."""
    known = truth != 0
    losses = np.logaddexp(0, -truth.astype(np.float64) * logits) * known
    with np.errstate(invalid="ignore"):
        return np.asarray(losses.sum(axis=1) / known.sum(axis=1), np.float64)


def choose(surprises: Array, truth: npt.NDArray[np.int8], number: int) -> list[tuple[str, int]]:
    """Kinds and rows: least, middle and most surprising, of each set of labels one as long as there are others."""
    judged = np.flatnonzero((truth == 1).any(axis=1) & np.isfinite(surprises))
    order = judged[np.argsort(surprises[judged], kind="stable")]
    middle = order[np.argsort(np.abs(np.arange(len(order)) - len(order) // 2), kind="stable")]
    taken: set[int] = set()
    chosen = []
    wanted = _shared(min(number, len(order)))
    lists = {"best": order, "typical": middle, "worst": order[::-1]}
    for kind in ("worst", "best", "typical"):
        rows = [row for row in lists[kind].tolist() if row not in taken]
        seen: set[bytes] = set()
        first: list[int] = []
        others: list[int] = []
        for row in rows:
            key = truth[row].tobytes()
            (others if key in seen else first).append(row)
            seen.add(key)
            if len(first) == wanted[kind]:
                break
        picked = (first + others)[: wanted[kind]]
        taken.update(picked)
        chosen += [(kind, row) for row in picked]
    place = list(lists)
    return sorted(chosen, key=lambda pair: place.index(pair[0]))


def _shared(number: int) -> dict[str, int]:
    best, typical = (int(number * SHARES[kind]) for kind in ("best", "typical"))
    return {"best": best, "typical": typical, "worst": number - best - typical}


def _tags(run: Run, scored: Scored, p: Array, tagged: npt.NDArray[np.bool_], row: int) -> list[Tag]:
    """Given tags, then missed ones, each with the likeliest first."""
    kinds = {1: RIGHT, 0: UNKNOWN, -1: WRONG}
    truth = scored.truth[row]
    order = np.argsort(-p, kind="stable")
    given = [Tag(kinds[int(truth[c])], run.classes[c], float(p[c])) for c in order if tagged[c]]
    return given + [
        Tag(MISSED, run.classes[c], float(p[c])) for c in order if truth[c] == 1 and not tagged[c]
    ]
