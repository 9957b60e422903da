"""Equal budgets: nine trials a method, over learning rates and the settings that matter to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spml.bench.plan import Case, Outcomes, Plan, Run, benchmark, validation
from spml.losses.metadata import Options

RATES = (2e-5, 5e-5, 1e-4)
Other = tuple[Options, dict[str, float]]  # options; head_lr, and a factor of the best rate


def _alpha(mu: float, sigma: float) -> Options:
    return {"mu": (0.5, mu), "sigma": (2.0, sigma)}


def _beta(b: float, w: float) -> Options:
    return {"w": (0.0, w), "b": (-2.0, b)}


def _values(name: str, *values: Any) -> list[Options]:
    return [{name: value} for value in values]


RATES_ALONE: list[Other] = [
    ({}, {"head_lr": 3.0}),
    ({}, {"head_lr": 30.0}),
    ({}, {"factor": 0.63}),
    ({}, {"factor": 1.41}),
    ({}, {"head_lr": 3.0, "factor": 1.41}),
    ({}, {"head_lr": 30.0, "factor": 0.63}),
]
DELTAS = _values("delta", 0.0005, 0.001, 0.003, 0.004, 0.005, 0.01)
SIX: dict[str, list[Options]] = {
    "an_ls": _values("smoothing", 0.02, 0.05, 0.15, 0.2, 0.3, 0.4),
    "focal": _values("gamma", 0.1, 0.25, 0.5, 1.0, 1.5, 3.0),
    "hill": [
        {"variant": "gr"},
        {"lam": 1.3},
        {"lam": 1.7},
        *({"variant": "gr", "lam": lam} for lam in (1.3, 1.7, 2.0)),
    ],
    "splc": [
        {"variant": "gr"},
        *_values("tau", 0.5, 0.7, 0.8),
        *({"variant": "gr", "tau": tau} for tau in (0.7, 0.8)),
    ],
    "ll_r": DELTAS,
    "ll_ct": DELTAS,
    "ll_cp": [
        *_values("delta", 0.0005, 0.002, 0.003),
        {"variant": "released"},
        *({"variant": "released", "delta": delta} for delta in (0.0005, 0.002)),
    ],
    "role": [
        *_values("label_lr", 3.0, 10.0),
        *_values("expected_positives", 1.3, 1.7, 2.0),
        {"label_lr": 10.0, "expected_positives": 1.7},
    ],
    "em": _values("alpha", 0.01, 0.05, 0.1, 0.15, 0.3, 0.4),
    "em_apl": [
        *_values("alpha", 0.05, 0.1, 0.4),
        *_values("beta", 0.1, 0.4),
        {"alpha": 0.1, "beta": 0.1},
    ],
    "gr": [
        *(_alpha(0.2, 0.1), _alpha(1.0, 0.1), _alpha(0.2, 0.5)),
        *(_beta(-2.0, 2.5), _beta(-5.0, 8.3333), _alpha(0.2, 0.1) | _beta(-2.0, 2.5)),
    ],
}
# where the values published for COCO differ
ON_COCO: dict[str, list[Options]] = {
    "ll_r": _values("delta", 0.001, 0.002, 0.003, 0.006, 0.008, 0.01),
    "ll_cp": [
        *_values("delta", 0.001, 0.003, 0.004),
        {"variant": "released"},
        *({"variant": "released", "delta": delta} for delta in (0.001, 0.003)),
    ],
    "role": [
        *_values("label_lr", 3.0, 10.0),
        *_values("expected_positives", 2.0, 2.5, 3.5),
        {"label_lr": 10.0, "expected_positives": 2.5},
    ],
    "em": _values("alpha", 0.01, 0.025, 0.05, 0.15, 0.2, 0.3),
    "em_apl": [
        *_values("alpha", 0.05, 0.2),
        *_values("beta", 0.02, 0.2, 0.5),
        {"alpha": 0.2, "beta": 0.02},
    ],
    "gr": [
        *(_alpha(0.2, 0.1), _alpha(1.0, 0.1), _alpha(0.2, 0.5)),
        *(_beta(-2.0, 2.0), _beta(-8.0, 8.0), _alpha(0.2, 0.1) | _beta(-2.0, 2.5)),
    ],
}


@dataclass(frozen=True)
class Budget:
    """Three learning rates with the published options, then six other settings at the best one.

    A method without options that matter has six other rates of the backbone and the head.
    """

    count: ClassVar[int] = 9

    def trials(self, plan: Plan, case: Case, outcomes: Outcomes) -> tuple[list[Run], bool]:
        """Return the three rates; with their results, all nine."""
        runs = [plan.run(case, "trial", plan.trial_seed, {}, lr=rate) for rate in RATES]
        records = [outcomes(run.id) for run in runs]
        if any(record is None for record in records):
            return runs, False
        figures = [validation(record) or 0.0 for record in records]
        best = RATES[figures.index(max(figures))]
        for options, own in others(case.method, benchmark(case.data or plan.data)):
            rate = float(f"{best * own.get('factor', 1.0):.3g}")
            settings = {"lr": rate}
            if "head_lr" in own:
                settings["head_lr"] = own["head_lr"]
            runs.append(plan.run(case, "trial", plan.trial_seed, options, **settings))
        return runs, True


def others(method: str, data: str = "voc") -> list[Other]:
    """Return the six settings besides the published ones."""
    six = {**SIX, **ON_COCO} if data == "coco" else SIX
    return [(options, {}) for options in six[method]] if method in six else RATES_ALONE
