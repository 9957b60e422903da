"""The paper's claims on VOC, and whether the recorded runs support them; all text is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from plans import ONE_RATE
from recorded import OPEN, Recorded, interval
from voc_plan import STUDIED

from spml.analysis.archive import comparable, find
from spml.analysis.confidences import Assumptions, Distinguishability
from spml.analysis.figures import study_cases
from spml.analysis.plots import figure_of
from spml.analysis.sensitivity import MOVES, STUDIES, Sensitivity, sensitivity
from spml.bench.tables import Row, by_third
from spml.report.format import signed

YES, PARTLY, NO, EITHER = "agrees", "agrees in part", "does not agree", "undecided"
SURE = 0.05
PARTS = ("k̂ ✓, v ✗, L ✗", "k̂ ✗, v ✓, L ✗", "k̂ ✗, v ✗, L ✓")
WHOLE, LEARNED = "k̂ ✓, v ✓, L ✓", "k̂ ○, v ○, L ✓"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the result of the runs, and the verdict."""

    paper: str
    here: str
    verdict: str


def studies(known: Recorded) -> list[Sensitivity]:
    """The grids of hyper-parameters with the figures of their runs."""
    return sensitivity(comparable(find(known.store.home)[0], study_cases(STUDIES), STUDIED))


def _decided(agrees: bool, disagrees: bool) -> str:
    """The verdict from two tests; at most one of them holds."""
    if agrees:
        return YES
    return NO if disagrees else EITHER


def waiting(paper: str, done: int, every: int) -> Claim:
    return Claim(paper, f"{OPEN} ({done} of {every})", OPEN)


def claims(
    known: Recorded, apart: list[Distinguishability], ends: list[Assumptions]
) -> Iterator[Claim]:
    yield _over_an(known)
    yield _best(known)
    yield _between_classes(known)
    yield _parts(known)
    yield _learned(known)
    grids = {study.name: study for study in studies(known)}
    yield _grid(
        grids["β"],
        "The best threshold is τ = 1 for every b, and every setting is above AN.",
        _peaks(1.0, ("AN",)),
    )
    yield _grid(
        grids["α"],
        "μ = 0.8 is best for every σ, and most settings are above EM and AN.",
        _peaks(0.8, ("EM", "AN")),
    )
    yield _grid(grids["q"], "q2 = 0.01 with q3 = 1 has the best validation mAP.", _best_q)
    yield _moving(known)
    yield _apart(apart)
    yield from _assumed(ends)


def _over_an(known: Recorded) -> Claim:
    """From Table B if it has both methods, else from Table A."""
    paper = "GR is above AN: 89.83 against 85.89, with ResNet-50."
    for name in ("Table B", "Table A"):
        v = known.row(name, "an").versus
        if v is not None:
            here = f"{name}: GR − AN is {interval(v, -1)}, seeds: {v.seeds}."
            return Claim(paper, here, _decided(v.high < 0, v.low > 0))
    return waiting(paper, *known.done(known.plan("Table A")))


def _best(known: Recorded) -> Claim:
    """From Table B if it is complete, else from Table A; query heads at one learning rate."""
    other = {row.label: row for row in known.table(known.plan("query heads")).rows}
    own = {method: other[label] for method, label in ONE_RATE.items() if other[label].seeds}
    paper = "GR is the best of the methods that see single positives."
    for name in ("Table B", "Table A"):
        rows = [
            own.get(row.label, row)
            for row in known.table(known.plan(name)).rows
            if row.label not in ("gr", "full")
        ]
        if all(row.versus is not None for row in rows):
            return _compared(paper, rows, name)
    return waiting(paper, *known.done(known.plan("Table B")))


def _compared(paper: str, rows: list[Row], name: str) -> Claim:
    sure = [row for row in rows if row.versus is not None and row.versus.p < SURE]
    above = [row for row in sure if row.versus is not None and row.versus.difference > 0]
    below = [row for row in sure if row not in above]
    open_ = [row for row in rows if row not in sure]
    parts = {
        f"below GR with p < {SURE}": below,
        "above likewise": above,
        "not distinguishable from it": open_,
    }
    text = "; ".join(
        f"{what}: {', '.join(map(_seeded, some))}" for what, some in parts.items() if some
    )
    return Claim(paper, f"{name}: {text}.", _decided(not (above or open_), bool(above)))


def _seeded(row: Row) -> str:
    """The label of a row, marked if it has only one seed."""
    return row.label + " (one seed)" * (row.seeds == 1)


def _between_classes(known: Recorded) -> Claim:
    """By thirds of the classes and by seed, next to the gain of complete labels."""
    paper = "GR deals with imbalance between classes, Focal does not."
    plan = known.plan("Table B")
    runs = {
        case.label: known.finals(plan, case)
        for case in plan.cases
        if case.label in ("an", "focal", "gr", "full")
    }
    done = {label: [r for run in some if (r := known.record(run))] for label, some in runs.items()}
    if any(len(some) < len(plan.seeds) for some in done.values()):
        return waiting(paper, *known.done(plan))
    thirds = {
        label: np.array(
            [[part.mean or 0.0 for part in by_third([record]).values()] for record in some]
        )
        for label, some in done.items()
    }
    # one row per seed
    gains = {label: thirds[label] - thirds["an"] for label in ("gr", "focal", "full")}
    means = {label: gain.mean(axis=0) for label, gain in gains.items()}
    more = {label: int((gain[:, -1] > gain[:, 0]).sum()) for label, gain in gains.items()}
    text = "; ".join(
        f"{name} − AN {', '.join(map(signed, means[label]))}, "
        f"more in the tail with {more[label]} of {len(plan.seeds)} seeds"
        for label, name in (("gr", "GR"), ("focal", "Focal"), ("full", "all labels"))
    )
    share = means["gr"] / means["full"]
    here = f"AP of the head, middle and tail third: {text}. "
    here += (
        f"Of what all labels gain, GR has {share[0]:.0%} in the head, {share[-1]:.0%} in the tail."
    )
    if more["gr"] == len(plan.seeds) and more["focal"] == 0:
        return Claim(paper, here, YES if share[-1] >= share[0] else PARTLY)
    return Claim(paper, here, NO if more["gr"] == 0 else EITHER)


def _parts(known: Recorded) -> Claim:
    paper = "Of the three parts alone, k̂ gives most; all three together give more than any less."
    plan = known.plan("Table 3")
    rows = {row.label: row for row in known.table(plan).rows}
    gr = [row for label, row in rows.items() if label.startswith(("k̂ ✓", "k̂ ✗"))]
    if any(row.seeds < row.wanted for row in gr):
        return waiting(paper, *known.done(plan))
    means = {row.label: row.test.mean or 0.0 for row in gr}
    alone = max(PARTS, key=means.__getitem__)
    best = max(means, key=means.__getitem__)
    alike = [
        row.label for row in gr if row.versus is not None and row.versus.low <= 0 <= row.versus.high
    ]
    here = f"By means over seeds, {alone} gives most alone ({means[alone]:.2f}); "
    here += f"the best of all is {best} ({means[best]:.2f})."
    if alike:
        here += f" Not distinguishable from {WHOLE}: {'; '.join(alike)}."
    if (alone, best) != (PARTS[0], WHOLE):
        return Claim(paper, here, NO)
    return Claim(paper, here, PARTLY if alike else YES)


def _learned(known: Recorded) -> Claim:
    paper = "k̂ and v learned by gradient descent are worse than scheduled: 89.03 against 89.83."
    learned = known.row("Table 3", LEARNED)
    if learned.versus is None or learned.seeds < learned.wanted:
        return waiting(paper, learned.seeds, learned.wanted)
    v = learned.versus
    here = f"Learned − scheduled is {interval(v)}."
    return Claim(paper, here, _decided(v.high < 0, v.low > 0))


def _grid(study: Sensitivity, paper: str, look: Callable[[Sensitivity], tuple[str, bool]]) -> Claim:
    if len(study.done) < len(study.points) or any(level.run is None for level in study.levels):
        return waiting(paper, len(study.done), len(study.points))
    here, agrees = look(study)
    return Claim(paper, here + " One seed.", YES if agrees else NO)


def _peaks(place: float, levels: tuple[str, ...]) -> Callable[[Sensitivity], tuple[str, bool]]:
    def look(study: Sensitivity) -> tuple[str, bool]:
        lines = list(dict.fromkeys(point.line for point in study.points))
        best = {
            line: max(
                (p for p in study.points if p.line == line), key=lambda p: figure_of(p, True) or 0.0
            )
            for line in lines
        }
        peaks = ", ".join(
            f"{point.x:g} ({figure_of(point, True):.2f}) for {line}" for line, point in best.items()
        )
        limits = {level.line: figure_of(level, True) or 0.0 for level in study.levels}
        above = {
            name: sum((figure_of(point, True) or 0.0) > limits[name] for point in study.points)
            for name in levels
        }
        counted = ", ".join(
            f"{number} of {len(study.points)} above {name}" for name, number in above.items()
        )
        enough = len(study.points) if len(levels) == 1 else len(study.points) // 2 + 1
        agrees = all(p.x == place for p in best.values()) and all(
            number >= enough for number in above.values()
        )
        return f"Best at {peaks}; {counted}.", agrees

    return look


def _best_q(study: Sensitivity) -> tuple[str, bool]:
    best = max(study.points, key=lambda point: point.val_map or 0.0)
    own = next(point for point in study.points if point.label == "q2 = 0.01, q3 = 1")
    test = max(study.points, key=lambda point: figure_of(point, True) or 0.0)
    here = f"Best is {best.label} ({best.val_map:.2f}); {own.label} has {own.val_map:.2f}."
    return f"{here} On test the best is {test.label} ({figure_of(test, True):.2f}).", best is own


def _moving(known: Recorded) -> Claim:
    paper = (
        "A q that moves over training would be better than a fixed one "
        "(named as a limitation, not tried)."
    )
    plan = known.plan(f"sensitivity, {MOVES}")
    fixed, *_, up, down = known.table(plan, plan.cases[0].label).rows
    if up.versus is None or down.versus is None or fixed.test.mean is None:
        return waiting(paper, *known.done(plan))
    rows = (up, down)
    changes = [f"{row.label}: {interval(v)}" for row in rows if (v := row.versus)]
    better = any(row.versus is not None and row.versus.low > 0 for row in rows)
    worse = all(row.versus is not None and row.versus.high < 0 for row in rows)
    here = f"Against {fixed.label} ({fixed.test.mean:.2f}), {'; '.join(changes)}. One seed."
    return Claim(paper, here, _decided(better, worse))


def _apart(apart: list[Distinguishability]) -> Claim:
    paper = (
        "The Wasserstein distance between positives and negatives is greater for GR than for AN "
        "in every epoch."
    )
    if not apart:
        return waiting(paper, 0, 2)
    gr, an = apart
    pairs = list(zip(gr.distances, an.distances, strict=True))[1:]
    greater = sum(one > other for one, other in pairs)
    best = f"{gr.best_distance:.3f} and {an.best_distance:.3f}"
    here = f"Greater in {greater} of {len(pairs)} epochs; at the best epochs {best}."
    return Claim(paper, here, YES if greater == len(pairs) else NO)


def _assumed(ends: list[Assumptions]) -> Iterator[Claim]:
    first = "Assumption 1: before training, FN/(FN+TN) is the same at every confidence."
    second = "Assumption 2: after training it rises with confidence, close to k̂ of Eq. (kx)."
    if not ends:
        yield from (waiting(first, 0, 2), waiting(second, 0, 2))
        return
    gr = ends[0]
    before, after = gr.before, gr.after
    here = f"{before.share:.4f} of all; χ² over bins p = {before.constant_p:.2f}; "
    here += f"a positive has the higher confidence in {before.higher:.1%} of pairs "
    here += "(half if it says nothing)."
    yield Claim(first, here, YES if before.constant_p > SURE else NO)
    ranks = ", ".join(
        f"{one.after.rank_correlation or 0.0:.2f} for {one.method.upper()}" for one in ends
    )
    shares = ", ".join(f"{one.after.within:.0%} of {one.method.upper()}'s" for one in ends)
    here = f"Rank correlation of confidence and ratio: {ranks}. "
    here += f"A bin's 95 % interval holds k̂ in {shares} bins."
    rises = (after.rank_correlation or 0.0) > 0.8
    close = after.within > 0.9
    verdict = PARTLY if rises else NO
    yield Claim(second, here, YES if rises and close else verdict)
