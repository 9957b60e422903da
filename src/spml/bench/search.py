"""Searches over a row's settings on the validation split: a grid, or Optuna.

Every row gets the same number of trials.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from spml.bench.plan import Case, Outcomes, Plan, Run, benchmark, validation
from spml.errors import EXTRA, UserError
from spml.keyed import key
from spml.losses.metadata import Options, differs

GRID_FACTORS = (0.4, 1.0, 2.0)  # times the data's learning rate
TUNE_RANGE = 5.0  # the range is the data's learning rate divided and multiplied by this
AT_ONCE = 3  # trials that Optuna draws without any result, so that they can run in parallel
AS_PUBLISHED = "{}"
Parameters = dict[str, Any]  # parameters of an Optuna trial: the learning rate, and option texts


@dataclass(frozen=True)
class Grid:
    """Learning rates, each with the published options and with the method's alternative.

    A row without an alternative tries additional learning rates instead, so that all rows have the
    same number of trials.
    """

    rates: tuple[float, ...]

    def trials(self, plan: Plan, case: Case, outcomes: Outcomes) -> tuple[list[Run], bool]:
        """Return all trials: a grid does not depend on results."""
        published = _published(plan, case)
        other = case.space.alternative(published)
        extra = between(self.rates) if other is None else self.rates
        pairs: list[tuple[Options, float]] = [({}, rate) for rate in self.rates]
        pairs += [(other or {}, rate) for rate in extra]
        runs = [plan.run(case, "trial", plan.trial_seed, own, lr=rate) for own, rate in pairs]
        return runs, True


def between(rates: Sequence[float]) -> list[float]:
    """Return as many additional rates: geometric means of neighbours, and one above the largest.

    A single rate gives its double.
    """
    ordered = sorted(rates)
    factor = ordered[-1] / ordered[-2] if len(ordered) > 1 else 2.0
    means = [math.sqrt(low * high) for low, high in pairwise(ordered)]
    return [float(f"{rate:.2g}") for rate in [*means, ordered[-1] * factor]]


@dataclass(frozen=True)
class Tune:
    """Optuna's tree-structured Parzen estimator over the row's space and the learning rate.

    The first trial has the published options and the data's learning rate. Draws depend only on the
    row and on earlier results, so that every process draws the same trials.

    `lr` is the data's learning rate.
    """

    count: int
    lr: float

    def __post_init__(self) -> None:
        if find_spec("optuna") is None:
            raise UserError(
                f"--tune needs Optuna; {EXTRA.format('search')}; "
                "or use --grid, which needs no extra"
            )

    def trials(self, plan: Plan, case: Case, outcomes: Outcomes) -> tuple[list[Run], bool]:
        """Return the trials that can be drawn from the results so far."""
        choices = _choices(plan, case)
        runs = [plan.run(case, "trial", plan.trial_seed, {}, lr=self.lr)]
        drawn: list[Parameters] = [{"lr": self.lr, **dict.fromkeys(choices, AS_PUBLISHED)}]
        while len(runs) < self.count:
            records = [outcomes(run.id) for run in runs]
            if len(runs) > AT_ONCE and any(record is None for record in records):
                return runs, False
            known = tuple(map(validation, records)) if len(runs) > AT_ONCE else ()
            seed = key(len(drawn), zlib.crc32(case.label.encode()))
            drawn.append(ask(json.dumps(choices), json.dumps(drawn), known, self.lr, seed))
            options: Options = {}
            for name in choices:
                options |= json.loads(drawn[-1][name])
            runs.append(plan.run(case, "trial", plan.trial_seed, options, lr=drawn[-1]["lr"]))
        return runs, True


@lru_cache(maxsize=4096)
def ask(
    choices: str, drawn: str, figures: tuple[float | None, ...], lr: float, seed: int
) -> Parameters:
    """Return Optuna's next trial after the earlier ones; a random one without their figures."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    low, high = lr / TUNE_RANGE, lr * TUNE_RANGE
    space: dict[str, optuna.distributions.BaseDistribution] = {
        "lr": optuna.distributions.FloatDistribution(low, high, log=True)
    }
    for name, texts in json.loads(choices).items():
        space[name] = optuna.distributions.CategoricalDistribution(texts)
    sampler = optuna.samplers.TPESampler(n_startup_trials=1, seed=seed % 2**32)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for parameters, figure in zip(json.loads(drawn), figures, strict=False):
        if figure is not None:
            trial = optuna.create_trial(params=parameters, distributions=space, value=figure)
            study.add_trial(trial)
    asked = dict(study.ask(space).params)
    return {**asked, "lr": min(max(float(f"{asked['lr']:.4g}"), low), high)}


def _published(plan: Plan, case: Case) -> Options:
    from spml.train.resolve import method_options

    return method_options(case.method, benchmark(case.data or plan.data), case.options)


def _choices(plan: Plan, case: Case) -> dict[str, list[str]]:
    """Return the choices of each dimension as text: the published options and all others."""
    published = _published(plan, case)
    choices = {}
    for name, options in case.space.dimensions.items():
        others = [json.dumps(choice) for choice in options if differs(choice, published)]
        choices[name] = [AS_PUBLISHED, *others]
    return choices
