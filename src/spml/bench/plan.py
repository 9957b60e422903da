"""What is to be run: rows of a table, and the runs that they take."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, Protocol

from spml.data.benchmarks import BENCHMARKS
from spml.losses import code
from spml.losses.metadata import Options, Space, plain

Stage = Literal["trial", "final"]
Record = dict[str, Any]
Outcomes = Callable[[str], Record | None]  # what is recorded of a run, by its id


@dataclass(frozen=True)
class Case:
    """A row of a table: a method, and what may be chosen for it.

    Attributes:
        label: of the row.
        method: by name.
        options: of the method that are fixed for the row.
        settings: of training that are the row's own.
        space: what a search may vary.
        data: where it is not the table's.
    """

    label: str
    method: str
    options: Options = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    space: Space = field(default_factory=Space)
    data: str | None = None


@dataclass(frozen=True)
class Run:
    """One training run of a plan.

    Attributes:
        table: that it belongs to.
        row: of that table.
        stage: a trial, by which settings are chosen, or a final run, which counts.
        data: the data's name.
        method: by name.
        options: of the method, where they are neither published for the data nor defaults.
        settings: of training, where they are not those of the data.
        seed: of the run.
    """

    table: str
    row: str
    stage: Stage
    data: str
    method: str
    options: Options
    settings: dict[str, Any]
    seed: int

    @property
    def id(self) -> str:
        """The same for the same training: a run that stands in two tables is made once.

        Training with a method of one's own is another one when its file has changed.
        """
        made = _canonical([self.data, self.method, self.options, self.settings])
        if own := code(self.method):
            made.append(own)
        digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:10]
        return f"{re.sub(r'[^A-Za-z0-9_]+', '-', self.method)}-{digest}-{self.seed}"

    def plain(self) -> Record:
        """As a dict that JSON can hold, its id first."""
        return {"id": self.id, **asdict(self)}


class Search(Protocol):
    """A way to choose settings on validation."""

    def trials(self, plan: Plan, case: Case, outcomes: Outcomes) -> tuple[list[Run], bool]:
        """The trials that are known by now, and whether those are all."""


@dataclass(frozen=True)
class Plan:
    """A table to be filled.

    Attributes:
        table: its name.
        data: the data's name.
        cases: its rows.
        seeds: of the final runs.
        settings: of training, common to all rows.
        search: how each row's settings are chosen; None takes those that it has.
        trial_seed: of the trials.
    """

    table: str
    data: str
    cases: tuple[Case, ...]
    seeds: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    search: Search | None = None
    trial_seed: int = 0

    def runs(self, outcomes: Outcomes) -> list[Run]:
        """All that is known to be needed: trials first, then the final runs of rows whose trials are done."""
        trials = [run for case in self.cases for run in self.trials(case, outcomes)]
        return trials + [run for case in self.cases for run in self.finals(case, outcomes)]

    def trials(self, case: Case, outcomes: Outcomes) -> list[Run]:
        """The row's trials that are known by now."""
        return self.search.trials(self, case, outcomes)[0] if self.search else []

    def finals(self, case: Case, outcomes: Outcomes) -> list[Run]:
        """The row's final runs; none while its settings are not chosen."""
        if self.search is None:
            return [self.run(case, "final", seed) for seed in self.seeds]
        best = self.chosen(case, outcomes)
        return (
            [] if best is None else [replace(best, stage="final", seed=seed) for seed in self.seeds]
        )

    def chosen(self, case: Case, outcomes: Outcomes) -> Run | None:
        """The trial with the best validation figure, the first of equals; None before all are done."""
        if self.search is None:
            return None
        trials, complete = self.search.trials(self, case, outcomes)
        records = [outcomes(run.id) for run in trials]
        if not complete or any(record is None for record in records):
            return None
        done = [
            (run, figure)
            for run, figure in zip(trials, map(validation, records), strict=True)
            if figure is not None
        ]
        return max(done, key=lambda pair: pair[1])[0] if done else None

    def undecided(self, case: Case, outcomes: Outcomes) -> bool:
        """Whether trials of the row are to be done before its final runs are known."""
        if self.search is None:
            return False
        trials, complete = self.search.trials(self, case, outcomes)
        return not complete or any(outcomes(run.id) is None for run in trials)

    def growing(self, outcomes: Outcomes) -> bool:
        """Whether more runs will be known once trials are done."""
        return any(self.undecided(case, outcomes) for case in self.cases)

    def run(
        self, case: Case, stage: Stage, seed: int, options: Options | None = None, **settings: Any
    ) -> Run:
        """A run of a row, with options and settings of its own."""
        data = case.data or self.data
        given = {**case.options, **(options or {})}
        merged = {**self.settings, **case.settings, **settings}
        return Run(
            self.table,
            case.label,
            stage,
            data,
            case.method,
            trimmed(case.method, data, given),
            {name: plain(merged[name]) for name in sorted(merged) if merged[name] is not None},
            seed,
        )


def done_in(record: Record | None) -> bool:
    """Whether the record is of a run that ended well."""
    return record is not None and "result" in record


def validation(record: Record | None) -> float | None:
    """The validation figure of a run that ended well."""
    return float(record["result"]["val_map"]) if record is not None and "result" in record else None


def trimmed(method: str, data: str, options: Mapping[str, Any]) -> Options:
    """The options that are neither published for the data nor defaults, as JSON holds them."""
    usual = _usual(method, benchmark(data))
    return {
        name: plain(options[name])
        for name in sorted(options)
        if name not in usual or plain(options[name]) != plain(usual[name])
    }


@lru_cache(maxsize=1024)
def _usual(method: str, data: str) -> Options:
    from spml.train.resolve import method_options

    return method_options(method, data, {})


def benchmark(data: str) -> str:
    """A benchmark's name without its version: voc of voc@jpeg88-448; others, and paths, as they are."""
    name = data.partition("@")[0]
    return name if name in BENCHMARKS else data


def distinct(runs: Sequence[Run]) -> list[Run]:
    """Each run once, in the order given."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.id, run)
    return list(first.values())


def _canonical(value: Any) -> Any:
    """The same for equal values: 2 for 2.0."""
    if isinstance(value, dict):
        return {name: _canonical(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
