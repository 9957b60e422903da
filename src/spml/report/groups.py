"""Runs that differ only in their seeds, put together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spml.report.format import setting
from spml.report.run import Run
from spml.runs.settings import UNNAMED, without_folder

_TELLING = ("data", "backbone", "selection")  # named first where groups of one method differ
# what may differ between runs that belong together
_OWN = {
    "seed",
    "observe_seed",
    "split_seed",
    "observed_sha256",
    "sample_sha256",
    "side_information",
}
_DATA = "data_sha256"  # of items and labels as they were drawn and split
_PLACE = {"command", "out", "root", "versions", "accelerator", "device", "devices"}


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of the numbers that are there.

    Attributes:
        mean: None without numbers.
        std: None with fewer than two.
        num: how many numbers.
    """

    mean: float | None
    std: float | None
    num: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Summary:
        """The summary of those values that are not None."""
        known = [value for value in values if value is not None]
        mean = float(np.mean(known)) if known else None
        return cls(mean, float(np.std(known, ddof=1)) if len(known) > 1 else None, len(known))


@dataclass(frozen=True)
class Band:
    """A quantity by epoch over the runs of a group."""

    epochs: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one method with the same settings.

    Attributes:
        label: the method, with the settings that tell it from other groups of that method.
        runs: in the order of their seeds.
    """

    label: str
    runs: Sequence[Run]

    @property
    def method(self) -> str:
        """The method's name."""
        return self.runs[0].method

    @property
    def finished(self) -> list[Run]:
        """The runs with a result."""
        return [run for run in self.runs if run.result is not None]

    @property
    def test(self) -> Summary:
        """Test mAP of the finished runs."""
        return Summary.of([run.outcome("test_map") for run in self.finished])

    @property
    def val(self) -> Summary:
        """Validation figure of the finished runs."""
        return Summary.of([run.val_map for run in self.finished])

    def band(self, key: str) -> Band:
        """A column of the history, over the runs that have each epoch."""
        curves = [run.curve(key) for run in self.runs]
        epochs = sorted(set().union(*curves))
        values = [[curve[epoch] for curve in curves if epoch in curve] for epoch in epochs]
        return Band(
            epochs,
            [float(np.mean(v)) for v in values],
            [min(v) for v in values],
            [max(v) for v in values],
        )


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups by settings, the best test mAP (or else validation mAP) first."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        facts = {name: value for name, value in _settings(run).items() if name != _DATA}
        alike.setdefault(json.dumps(facts, sort_keys=True), []).append(run)
    listed = [
        sorted(group, key=_seed) for found in alike.values() for group in _on_the_same_data(found)
    ]
    groups = [
        Group(_label(group[0], [other[0] for other in listed if other is not group]), group)
        for group in listed
    ]
    return sorted(groups, key=_rank)


def _on_the_same_data(runs: Sequence[Run]) -> list[list[Run]]:
    """Other draws of labels and other splits are other data only where the same seeds, too, found others."""
    found = {seeds(run)[1:]: run.fact(_DATA) for run in runs}
    if all(found[seeds(run)[1:]] == run.fact(_DATA) for run in runs):
        return [list(runs)]
    parts: dict[Any, list[Run]] = {}
    for run in runs:
        parts.setdefault(run.fact(_DATA), []).append(run)
    return list(parts.values())


def seeds(run: Run) -> tuple[str, ...]:
    """What tells a run from the others of its group."""
    return tuple(setting(run.fact(name)) for name in ("seed", "observe_seed", "split_seed"))


def _seed(run: Run) -> tuple[bool, float, str]:
    seed = run.fact("seed")
    known = isinstance(seed, int | float)
    return not known, seed if known else 0, run.name


def _rank(group: Group) -> tuple[float, float, str]:
    test, val = group.test.mean, group.val.mean
    return np.inf if test is None else -test, np.inf if val is None else -val, group.label


def _label(run: Run, others: Sequence[Run]) -> str:
    """The method with as few settings as tell it from its rivals."""
    own = _settings(run)
    rivals = [_settings(other) for other in others if other.method == run.method]
    parts = [run.method]
    for name in dict.fromkeys(name for settings in (own, *rivals) for name in settings):
        alike = [rival for rival in rivals if rival.get(name) == own.get(name)]
        if len(alike) < len(rivals) and name in own:
            parts.append(f"{name} = {setting(own[name])}")
        rivals = alike
    return ", ".join(parts)


def _settings(run: Run) -> dict[str, Any]:
    """What makes a run the same as another but for its seeds: options first, then the rest."""
    options = run.fact("options")
    facts = {name: run.fact(name) for name in ("method", *_TELLING)}
    facts |= {
        name: value
        for name, value in {**UNNAMED, **run.config}.items()
        if name not in {*_OWN, *_PLACE, "options", *facts}
    }
    if isinstance(drawn := facts.get("observation"), dict):
        facts["observation"] = {name: value for name, value in drawn.items() if name != "seed"}
    return {**(options if isinstance(options, dict) else {}), **without_folder(facts)}
