"""The rows of a bench, and of the paper's Table 3: the contribution of each part of GR Loss.

A check mark means that the row uses the part, with hyper-parameters tuned for the row. A cross
means the values of the caption: k(p) = 0, v(p) = 1, q1 = q2 = q3 = 0.01.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from spml import losses
from spml.bench.plan import Case
from spml.data.benchmarks import paper_counts
from spml.losses.metadata import Options, Space
from spml.runs.settings import AUTO

if TYPE_CHECKING:
    from spml.data import Experiment

PARTS = ("k̂", "v", "L")
CROSS: dict[str, Options] = {
    "k̂": {"khat": False},
    "v": {"v": False},
    "L": {"q1": 0.01, "q2": 0.01, "q3": 0.01},
}
ROBUST = tuple({"q2": q2, "q3": q3} for q2 in (0.01, 0.25) for q3 in (0.5, 0.75, 1.0, 1.5))
ALTERNATIVES: dict[str, tuple[Options, ...]] = {
    "v": ({"mu": (0.5, 0.8), "sigma": (2.0, 1.0)},),
    "L": ({"q3": 1.5}, {"q3": 1.0}),
}


def paper_methods() -> list[str]:
    """Return the methods of the paper's Table 2, in its order."""
    rows = {name: losses.about(name).table2 for name in losses.names()}
    return sorted((name for name, row in rows.items() if row), key=lambda name: rows[name] or 0)


def method_cases(
    methods: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> tuple[Case, ...]:
    """Return a row for each method; a search does not vary the fixed `options` of a method."""
    cases = []
    for name in methods:
        fixed = dict(options.get(name, {}))
        if name == AUTO:
            cases.append(Case(name, name))
            continue
        losses.check_options(name, fixed)
        cases.append(Case(name, name, fixed, space=losses.space(name).without(fixed)))
    return tuple(cases)


def ablation_cases(a: float | None) -> tuple[Case, ...]:
    """Return the rows: AN, the eight combinations, the learned one, and k_hat of Eq. (kx).

    `a`, the probability that a positive is observed, is for the last row; None omits that row.
    """
    rows = [Case("AN", "an", space=losses.space("an"))]
    marks = sorted(product((False, True), repeat=3), key=lambda row: (sum(row), [-m for m in row]))
    rows += [_case(dict(zip(PARTS, row, strict=True))) for row in marks]
    rows.append(Case("k̂ ○, v ○, L ✓", "gr_learnable", space=losses.space("gr_learnable")))
    if a is not None:
        rows.append(_case({"v": True, "L": True}, "k̂ of Eq. (kx), v ✓, L ✓", {"a": a}))
    return tuple(rows)


def observed_share(experiment: Experiment) -> float | None:
    """Return a = 1 / (mean positives of a training image).

    Benchmarks use the paper's figure; other data are counted, None without complete labels.
    """
    paper = paper_counts(experiment.name)
    if paper is not None:
        return round(1 / paper.positives, 4)
    if experiment.complete is None:
        return None
    rows = experiment.train_rows
    mean = experiment.complete.sparse.take(rows).counts(1).sum() / len(rows)
    return round(float(1 / mean), 4) if mean > 1 else None


def _case(marks: dict[str, bool], label: str | None = None, options: Options | None = None) -> Case:
    gr, names = losses.space("gr"), {"k̂": "beta", "v": "alpha", "L": "q"}
    dimensions = {**gr.dimensions, "q": ROBUST}
    alternatives = {"k̂": gr.alternatives, **ALTERNATIVES}
    checked = [part for part in PARTS if marks.get(part)]
    fixed = dict(options or {})
    for part in PARTS:
        fixed |= {} if marks.get(part, True) else CROSS[part]
    label = label or ", ".join(f"{part} {'✓' if marks[part] else '✗'}" for part in PARTS)
    varied = {names[part]: dimensions[names[part]] for part in checked}
    space = Space(varied, alternatives[checked[0]] if checked else ())
    return Case(label, "gr", fixed, space=space)
