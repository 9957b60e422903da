"""The plan of a table: its rows and the runs they need."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

from spml.data.benchmarks import BENCHMARKS
from spml.losses import code
from spml.losses.metadata import Options, Space, plain
from spml.runs.settings import AUTO

Stage = Literal["trial", "final"]
Record = dict[str, Any]  # a JSON document; `record.read_record` and `files.read_collected` check it
SettingValues = dict[str, Any]  # training settings by name, as JSON holds them
Outcomes = Callable[[str], Record | None]  # returns the record of a run id


@dataclass(frozen=True)
class Case:
    """A row of a table: a method, its fixed options and the space that a search may vary.

    `data` is given if it differs from the table's, `settings` are training settings of this row.
    """

    label: str
    method: str
    options: Options = field(default_factory=dict)
    settings: SettingValues = field(default_factory=dict)
    space: Space = field(default_factory=Space)
    data: str | None = None


@dataclass(frozen=True)
class Run:
    """One training run of a plan.

    `stage` is "trial" if the run chooses settings, "final" if the table reports it. `options` and
    `settings` hold what differs from the published values and the data's defaults.
    """

    table: str
    row: str
    stage: Stage
    data: str
    method: str
    options: Options
    settings: SettingValues
    seed: int

    @property
    def id(self) -> str:
        """Identifier of the training: a run that two tables share is trained once.

        A user's own method gets a new id when its file changes.
        """
        identity = _canonical([self.data, self.method, self.options, self.settings])
        if self.method != AUTO and (own := code(self.method)):
            identity.append(own)
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
        return f"{re.sub(r'[^A-Za-z0-9_]+', '-', self.method)}-{digest}-{self.seed}"

    def plain(self) -> Record:
        """Return a dict for JSON that starts with the id."""
        return {"id": self.id, **asdict(self)}


class Search(Protocol):
    """A way to choose settings on the validation split."""

    def trials(self, plan: Plan, case: Case, outcomes: Outcomes) -> tuple[list[Run], bool]:
        """Return the trials that are known so far, and whether these are all."""


@dataclass(frozen=True)
class Plan:
    """A table to fill.

    Attributes:
        seeds: seeds of the final runs.
        draws: seeds that draw the observed labels of the final runs; None is the settings' draw.
        settings: training settings of all rows.
        search: how the settings of each row are chosen; None uses the row's own settings.
        trial_seed: seed of the trials.
    """

    table: str
    data: str
    cases: tuple[Case, ...]
    seeds: tuple[int, ...]
    settings: SettingValues = field(default_factory=dict)
    search: Search | None = None
    trial_seed: int = 0
    draws: tuple[int | None, ...] = (None,)

    @property
    def wanted(self) -> int:
        """Number of final runs of a row."""
        return len(self.seeds) * len(self.draws)

    def runs(self, outcomes: Outcomes) -> list[Run]:
        """Return the known runs: all trials, then the final runs of rows with finished trials."""
        trials = [run for case in self.cases for run in self.trials(case, outcomes)]
        return trials + [run for case in self.cases for run in self.finals(case, outcomes)]

    def trials(self, case: Case, outcomes: Outcomes) -> list[Run]:
        """Return the trials of a row that are known so far."""
        return self.search.trials(self, case, outcomes)[0] if self.search else []

    def finals(self, case: Case, outcomes: Outcomes) -> list[Run]:
        """Return the final runs of a row; none before its settings are chosen."""
        best = self.run(case, "final", 0) if self.search is None else self.chosen(case, outcomes)
        if best is None:
            return []
        return [
            self.run(case, "final", seed, best.options, **_drawn(best.settings, draw))
            for draw in self.draws
            for seed in self.seeds
        ]

    def chosen(self, case: Case, outcomes: Outcomes) -> Run | None:
        """Return the trial with the best validation mAP, the first if several tie.

        None before all trials have ended.
        """
        if self.undecided(case, outcomes):
            return None
        figures = [(run, validation(outcomes(run.id))) for run in self.trials(case, outcomes)]
        done = [(run, figure) for run, figure in figures if figure is not None]
        return max(done, key=lambda pair: pair[1])[0] if done else None

    def undecided(self, case: Case, outcomes: Outcomes) -> bool:
        """Return whether the row's final runs depend on trials that have not ended."""
        if self.search is None:
            return False
        trials, complete = self.search.trials(self, case, outcomes)
        return not complete or any(outcomes(run.id) is None for run in trials)

    def growing(self, outcomes: Outcomes) -> bool:
        """Return whether finished trials will add runs."""
        return any(self.undecided(case, outcomes) for case in self.cases)

    def run(
        self, case: Case, stage: Stage, seed: int, options: Options | None = None, **settings: Any
    ) -> Run:
        """Return a run of a row with additional options and settings."""
        data = case.data or self.data
        merged = {**self.settings, **case.settings, **settings}
        return Run(
            table=self.table,
            row=case.label,
            stage=stage,
            data=data,
            method=case.method,
            options=trimmed(case.method, data, {**case.options, **(options or {})}),
            settings={
                name: plain(merged[name]) for name in sorted(merged) if merged[name] is not None
            },
            seed=seed,
        )


def _drawn(settings: SettingValues, draw: int | None) -> SettingValues:
    return settings if draw is None else {**settings, "observe_seed": draw}


def done_in(record: Record | None) -> bool:
    """Return whether the record is that of a finished run."""
    return record is not None and "result" in record


def validation(record: Record | None) -> float | None:
    """Return the validation figure of a finished run; None for a failed one."""
    return float(record["result"]["val_map"]) if record and done_in(record) else None


def trimmed(method: str, data: str, options: Mapping[str, Any]) -> Options:
    """Return the options that differ from the published values and defaults, as JSON values."""
    usual = _usual(method, benchmark(data)) if options else {}
    return {
        name: plain(options[name])
        for name in sorted(options)
        if name not in usual or plain(options[name]) != plain(usual[name])
    }


@lru_cache(maxsize=1024)
def _usual(method: str, data: str) -> Options:
    from spml.data.readers.read import is_named
    from spml.train.resolve import FROM_DATA, method_options

    usual = method_options(method, data, {})
    if not is_named(data):  # own data decide these, so a value that is set is never the usual one
        for name in FROM_DATA.get(method, ()):
            del usual[name]
    return usual


def benchmark(data: str) -> str:
    """Return a benchmark's name without its version: "voc" for "voc@jpeg88-448".

    Other names and paths, such as that of a file coco@mine.npz, are returned unchanged.
    """
    name = data.partition("@")[0]
    return name if name in BENCHMARKS and not Path(data).exists() else data


def distinct(runs: Sequence[Run]) -> list[Run]:
    """Return each run once, in the same order."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.id, run)
    return list(first.values())


def _canonical(value: Any) -> Any:
    """Return equal JSON for equal values: 2 for 2.0."""
    if isinstance(value, dict):
        return {name: _canonical(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
