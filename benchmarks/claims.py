"""The paper's claims, and whether the recorded runs support them; all text is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from from_scores import Family, assumed, distances, histograms, tail_over_head
from plans import ONE_RATE
from recorded import Recorded, interval
from verdicts import (
    BUDGETS,
    EITHER,
    MAIN,
    NO,
    YES,
    Claim,
    against_paper,
    gap,
    over,
    parts,
    superlative,
    waiting,
    widest,
)
from voc_plan import IN_QUESTION, STUDIED

from spml.analysis.archive import comparable, find
from spml.analysis.figures import study_cases
from spml.analysis.plots import figure_of
from spml.analysis.sensitivity import STUDIES, PointResult, Sensitivity, sensitivity
from spml.bench.plan import Record
from spml.bench.published import paper_quote
from spml.bench.tables import Row, by_third
from spml.metrics.bootstrap import Comparison, Measured, compare
from spml.report.format import signed

WHOLE, LEARNED = "k̂ ✓, v ✓, L ✓", "k̂ ○, v ○, L ✓"
WITHOUT_V = "k̂ ✓, v ✗, L ✓"
ALONE = "k̂ ✓, v ✗, L ✗"
OTHERS_ALONE = {"v": "k̂ ✗, v ✓, L ✗", "L": "k̂ ✗, v ✗, L ✓"}
HOW_MUCH = {"voc": "almost a point more"}  # else only "more"
GRIDS = {
    "β": "The best threshold is τ = 1 for every b, and every setting is above AN.",
    "α": "μ = 0.8 is best for every σ, and most settings are above EM and AN.",
    "q": "q2 = 0.01 with q3 = 1 has the best validation mAP.",
    "moving q3": "A q that moves over training would be better than a fixed one (named as a "
    "limitation, not tried).",
}


def studies(known: Recorded) -> list[Sensitivity]:
    """The grids of hyper-parameters with the figures of their runs."""
    return sensitivity(comparable(find(known.store.home)[0], study_cases(STUDIES), STUDIED))


def claims(known: Recorded, families: Sequence[Family]) -> Iterator[Claim]:
    yield _over_an(known)
    yield _over_em(known)
    yield _best(known)
    yield _worst(known)
    yield _between_classes(known, families)
    yield _alone(known)
    yield _whole(known)
    yield _learned(known)
    if known.has(f"sensitivity, {STUDIES[0].name}"):
        for study in studies(known):
            yield _grid(known, study)
    yield distances(families)
    yield histograms(families)
    yield from assumed(families)


def main_table(known: Recorded) -> str:
    """The comparison with equal budgets if it is complete, else Table B if the data have one."""
    done, every = known.done(known.plan(BUDGETS))
    return BUDGETS if done == every or not known.has(MAIN) else MAIN


def first_table(known: Recorded) -> str:
    """The comparison that was planned first."""
    return MAIN if known.has(MAIN) else BUDGETS


def _paper(known: Recorded, row: str) -> float:
    """The paper's figure for a row."""
    quote = paper_quote(row, known.setup.data)
    assert quote is not None
    return quote.mean


def _waiting(paper: str, known: Recorded, name: str) -> Claim:
    return waiting(paper, *known.done(known.plan(name)))


def _over_an(known: Recorded) -> Claim:
    gr, an = (_paper(known, name) for name in ("gr", "an"))
    paper = f"GR is above AN: {gr:.2f} against {an:.2f}."
    v = widest(known, "gr", "an")
    if v is None:
        return _waiting(paper, known, first_table(known))
    return Claim(paper, f"{against_paper(v, gr - an)}, {over(v)}.", superlative([v.sign]))


def _over_em(known: Recorded) -> Claim:
    own = {name: _paper(known, name) for name in ("gr", "em", "em_apl")}
    paper = "GR is above EM and EM+APL: {gr:.2f} against {em:.2f} and {em_apl:.2f}.".format(**own)
    em, apl = widest(known, "gr", "em"), gap(known, main_table(known), "gr", "em_apl")
    if em is None or apl is None:
        return _waiting(paper, known, first_table(known))
    here = f"GR − EM {against_paper(em, own['gr'] - own['em'])}, {over(em)}; "
    here += f"GR − EM+APL {against_paper(apl, own['gr'] - own['em_apl'])}, {over(apl)}."
    return Claim(paper, here, superlative([em.sign, apl.sign]))


def _compared(known: Recorded, base: str) -> list[Row]:
    """All methods for single positives against one; query heads at one learning rate."""
    own: dict[str, Row] = {}
    if known.has("query heads"):
        heads = {row.label: row for row in known.table(known.plan("query heads"), base).rows}
        own = {method: heads[label] for method, label in ONE_RATE.items() if heads[label].seeds}
    rows = known.table(known.plan(main_table(known)), base).rows
    named = {row.label: row for row in rows if row.label not in (base, "full")} | own
    return list(named.values())


def _listed(rows: Sequence[Row], base: str) -> str:
    """Which rows are above and below the base, and which are neither."""
    names: dict[int, list[str]] = {1: [], -1: [], 0: []}
    for row in rows:
        assert row.versus is not None
        names[row.versus.sign].append(row.label + " (one seed)" * (row.versus.p is None))
    words = {1: f"above {base}", -1: f"below {base}", 0: "undecided"}
    return "; ".join(f"{words[sign]}: {', '.join(some)}" for sign, some in names.items() if some)


def _best(known: Recorded) -> Claim:
    paper = "GR is the best of the methods that see single positives."
    rows = _compared(known, "gr")
    if any(row.versus is None for row in rows):
        return _waiting(paper, known, first_table(known))
    signs = [-row.versus.sign for row in rows if row.versus is not None]
    return Claim(paper, f"{main_table(known)}: {_listed(rows, 'GR')}.", superlative(signs))


def _worst(known: Recorded) -> Claim:
    paper = "AN is the worst almost everywhere."
    rows = _compared(known, "an")
    if any(row.versus is None for row in rows):
        return _waiting(paper, known, first_table(known))
    signs = [row.versus.sign for row in rows if row.versus is not None]
    return Claim(paper, f"{main_table(known)}: {_listed(rows, 'AN')}.", superlative(signs))


def _records(known: Recorded, name: str) -> dict[str, list[Record]]:
    plan = known.plan(name)
    runs = {case.label: known.finals(plan, case) for case in plan.cases}
    return {label: [r for run in some if (r := known.record(run))] for label, some in runs.items()}


def _between_classes(known: Recorded, families: Sequence[Family]) -> Claim:
    """What the tail third of the classes gains over AN more than the head third."""
    paper = "GR deals with imbalance between classes, Focal does not."
    name = first_table(known)
    rows = {label: _records(known, name)[label] for label in ("an", "focal", "gr", "full")}
    wanted = len(known.plan(name).seeds)
    if any(len(some) < wanted for some in rows.values()):
        return _waiting(paper, known, name)
    thirds = {
        label: np.array([[part.mean or 0.0 for part in by_third([r]).values()] for r in some])
        for label, some in rows.items()
    }
    more = {label: _more(thirds[label], thirds["an"]) for label in ("gr", "focal")}
    exact = tail_over_head(families, [record["seed"] for record in rows["gr"]])
    more |= {} if exact is None else {"gr": exact}
    means = {label: (thirds[label] - thirds["an"]).mean(axis=0) for label in thirds}
    here = "What the tail third gains over AN more than the head third: "
    here += f"GR {interval(more['gr'])}, {over(more['gr'])}; "
    here += f"Focal {interval(more['focal'])}, over seeds alone. Head, middle and tail: "
    here += "; ".join(
        f"{name} − AN {', '.join(map(signed, means[label]))}"
        for label, name in (("gr", "GR"), ("focal", "Focal"), ("full", "all labels"))
    )
    share = means["gr"] / means["full"]
    here += f". Of what all labels gain, GR has {share[0]:.0%} in the head, {share[-1]:.0%} in the"
    verdict = NO if more["gr"].sign < 0 or more["focal"].sign > 0 else EITHER
    decided = more["gr"].sign > 0 and more["focal"].sign <= 0
    return Claim(paper, here + " tail.", YES if decided else verdict)


def _more(own: np.ndarray, other: np.ndarray) -> Comparison:
    """Compare tail minus head over seeds; the records hold no resampled AP of the thirds."""
    gains = [rows[:, -1] - rows[:, 0] for rows in (own, other)]
    sides = [[Measured(0, seed, v, [0.0, 0.0]) for seed, v in enumerate(some)] for some in gains]
    return compare(*sides)


def _alone(known: Recorded) -> Claim:
    own = _paper(known, ALONE)
    others = {name: _paper(known, label) for name, label in OTHERS_ALONE.items()}
    more = HOW_MUCH.get(known.setup.data, "more")
    paper = f"k̂ alone gives {more} than v or L alone: {own:.2f} against "
    paper += f"{others['v']:.2f} and {others['L']:.2f}."
    found = {
        name: (gap(known, "Table 3", ALONE, label), own - others[name])
        for name, label in OTHERS_ALONE.items()
    }
    leads = {name: (v, lead) for name, (v, lead) in found.items() if v is not None}
    if len(leads) < len(found):
        return _waiting(paper, known, "Table 3")
    each = [f"over {name} {against_paper(v, lead)}" for name, (v, lead) in leads.items()]
    here = "; ".join(each) + f"; {over(leads['v'][0])}."
    return Claim(paper, here, parts(v.sign for v, _ in leads.values()))


def _whole(known: Recorded) -> Claim:
    added = _paper(known, WHOLE) - _paper(known, WITHOUT_V)
    paper = f"All three parts together give more than any less; v adds {added:.2f} to k̂ and L."
    labels = [case.label for case in known.plan("Table 3").cases]
    less = [label for label in labels if label.startswith(("k̂ ✓", "k̂ ✗")) and label != WHOLE]
    found = {label: gap(known, "Table 3", WHOLE, label) for label in less}
    leads = {label: v for label, v in found.items() if v is not None}
    if len(leads) < len(less):
        return _waiting(paper, known, "Table 3")
    alike = [label for label, v in leads.items() if not v.sign]
    here = f"v adds {against_paper(leads[WITHOUT_V], added)}, {over(leads[WITHOUT_V])}; "
    here += f"more than {sum(v.sign > 0 for v in leads.values())} of {len(less)} with less"
    here += f", undecided against {'; '.join(alike)}." if alike else "."
    return Claim(paper, here, superlative(v.sign for v in leads.values()))


def _learned(known: Recorded) -> Claim:
    learned, scheduled = _paper(known, LEARNED), _paper(known, WHOLE)
    paper = "k̂ and v learned by gradient descent are worse than scheduled: "
    paper += f"{learned:.2f} against {scheduled:.2f}."
    v = gap(known, "Table 3", LEARNED, WHOLE)
    if v is None:
        return _waiting(paper, known, "Table 3")
    here = f"Learned − scheduled is {against_paper(v, learned - scheduled)}, {over(v)}."
    return Claim(paper, here, superlative([-v.sign]))


def _grid(known: Recorded, study: Sensitivity) -> Claim:
    """Decided by fresh seeds of the settings in question; one seed of all settings is shown."""
    paper, table = GRIDS[study.name], f"in question, {study.name}"
    if len(study.done) < len(study.points) or any(level.run is None for level in study.levels):
        return waiting(paper, len(study.done), len(study.points))
    here = f"One seed: {_peaks(study)}."
    pairs = [(own, other) for own, other in IN_QUESTION[study.name] if own != other]
    found = [(own, other, gap(known, table, own, other)) for own, other in pairs]
    leads = [(own, other, v) for own, other, v in found if v is not None]
    if len(leads) < len(found):
        done, every = known.done(known.plan(table))
        return Claim(paper, f"{here} {done} of {every} runs that decide it are recorded.", EITHER)
    text = "; ".join(f"{own} against {other}: {interval(v)}" for own, other, v in leads)
    return Claim(
        paper, f"{here} {over(leads[0][2])}: {text}.", superlative(v.sign for *_, v in leads)
    )


def _peaks(study: Sensitivity) -> str:
    """The best setting of each line, and how many settings are above the level lines."""
    lines = dict.fromkeys(point.line for point in study.points)
    groups = [[point for point in study.points if point.line == line] for line in lines]
    if study.name not in ("β", "α"):
        groups = [list(study.points)]
    validated = study.name == "q"
    best = [max(points, key=lambda point: _figure(point, validated)) for points in groups]
    peaks = ", ".join(f"{point.label} ({_figure(point, validated):.2f})" for point in best)
    above = ", ".join(
        f"{sum(_figure(p) > _figure(level) for p in study.points)} of {len(study.points)} "
        f"above {level.line}"
        for level in study.levels
    )
    return f"best {'validation mAP at ' if validated else 'at '}{peaks}; {above}"


def _figure(point: PointResult, validated: bool = False) -> float:
    return (point.val_map if validated else figure_of(point, True)) or 0.0
