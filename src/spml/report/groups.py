"""Groups of runs that differ only in their seeds, and the table of their results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spml.report.format import NONE, is_hash, percent, setting, signed
from spml.runs.run import Run
from spml.runs.settings import DATA_HASH, SEEDS, group_key

BASELINE, BOUND = "an", "full"
ESTIMATE = "Without complete labels mAP is unknown: the estimate only ranks runs on the same data."
SHORT_HASH = 8  # letters of a hash in a label
_FIRST = ("method", "data", "backbone", "selection")  # the first settings of a group's label


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of `num` known numbers; None if they are too few."""

    mean: float | None
    std: float | None
    num: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Summary:
        """Summarise the values that are not None."""
        known = [value for value in values if value is not None]
        mean = float(np.mean(known)) if known else None
        return cls(mean, float(np.std(known, ddof=1)) if len(known) > 1 else None, len(known))

    def __str__(self) -> str:
        return percent(self.mean) + ("" if self.std is None else f" ± {percent(self.std)}")


@dataclass(frozen=True)
class Band:
    """A quantity by epoch over the runs of a group."""

    epochs: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one method with the same settings, in the order of their seeds.

    The label is the method, with the settings that distinguish it from other groups of that method.
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
        """Return a column of the history, over the runs that have each epoch."""
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
    """Group runs that differ only in their seeds; the best test (or else validation) mAP first."""
    equal: dict[str, list[Run]] = {}
    for run in runs:
        equal.setdefault(json.dumps(_settings(run), sort_keys=True), []).append(run)
    listed = [sorted(group, key=_seed) for same in equal.values() for group in _by_data(same)]
    groups = [
        Group(_label(group[0], [other[0] for other in listed if other is not group]), group)
        for group in listed
    ]
    return sorted(groups, key=_rank)


def _by_data(runs: Sequence[Run]) -> list[list[Run]]:
    """Split runs by their data, if the same seeds drew different labels or rows in some of them."""
    drawn = {seeds(run)[1:]: run.fact(DATA_HASH) for run in runs}
    if all(drawn[seeds(run)[1:]] == run.fact(DATA_HASH) for run in runs):
        return [list(runs)]
    hashes = dict.fromkeys(run.fact(DATA_HASH) for run in runs)
    return [[run for run in runs if run.fact(DATA_HASH) == part] for part in hashes]


def seeds(run: Run) -> tuple[str, ...]:
    """Return the seeds of a run, which distinguish it within its group; its own seed first."""
    return tuple(setting(run.fact(name)) for name in SEEDS)


def _seed(run: Run) -> tuple[bool, float, str]:
    seed = run.fact("seed")
    known = isinstance(seed, int | float)
    return not known, seed if known else 0, run.name


def _rank(group: Group) -> tuple[float, float, str]:
    test, val = group.test.mean, group.val.mean
    return np.inf if test is None else -test, np.inf if val is None else -val, group.label


def _label(run: Run, others: Sequence[Run]) -> str:
    """Return the method with as few settings as distinguish it from its rivals."""
    own = _described(run)
    rivals = [_described(other) for other in others if other.method == run.method]
    parts = [run.method]
    for name in dict.fromkeys(name for settings in (own, *rivals) for name in settings):
        same = [rival for rival in rivals if rival.get(name) == own.get(name)]
        if len(same) < len(rivals) and name in own:
            value = setting(own[name])
            parts.append(f"{name} = {value[:SHORT_HASH] if is_hash(name) else value}")
        rivals = same
    return ", ".join(parts)


def _described(run: Run) -> dict[str, Any]:
    """Return the settings of a group with the hash of its data, the options of the method first."""
    settings = _settings(run)
    options = settings.pop("options")
    data = {DATA_HASH: run.config[DATA_HASH]} if DATA_HASH in run.config else {}
    return {**options, **settings, **data}


def _settings(run: Run) -> dict[str, Any]:
    """Return the settings that the runs of a group share."""
    facts = {name: run.fact(name) for name in (*_FIRST, "options")}
    settings = group_key({**facts, **run.config, **facts})
    return {**settings, "options": settings["options"] or {}}


@dataclass(frozen=True)
class ResultTable:
    """A table of results as text; the first column names the rows.

    `best` holds the positions (row, column) of cells in bold, `tags` labels next to rows' names.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]
    best: frozenset[tuple[int, int]] = frozenset()
    tags: dict[int, list[str]] = field(default_factory=dict)


def result_table(
    groups: Sequence[Group], *, comparable: bool, val_figure: str, selection: str | None
) -> ResultTable:
    """Return the table of a comparison, a row for each group; `comparable` if on the same data.

    `val_figure` chose the epochs, "mAP" or "estimate", on the labels `selection`; None if the runs
    used different ones.
    """
    figures = {"test": "test mAP", "val": f"validation {val_figure}"}
    columns = {"method": [group.label for group in groups]}
    columns[figures["test"]] = [str(group.test) for group in groups]
    if comparable:
        columns |= _differences(groups, figures)
    columns[figures["val"]] = [str(group.val) for group in groups]
    if selection is None:
        kinds = [group.runs[0].fact("selection") or NONE for group in groups]
        columns["epoch chosen on"] = [f"{kind} labels" for kind in kinds]
    columns["seeds"] = [str(len(group.finished)) for group in groups]
    ranked = ["test"] if selection is None else ["test", "val"]
    if not comparable or len(groups) < 2:
        ranked = []
    header = list(columns)
    return ResultTable(
        title="",
        header=header,
        rows=[list(row) for row in zip(*columns.values(), strict=True)],
        notes=[_note(bool(ranked), val_figure, selection)],
        best=frozenset(
            (row, header.index(figures[key])) for key in ranked for row in _best(groups, key)
        ),
        tags={number: _tags(group) for number, group in enumerate(groups)},
    )


def _differences(groups: Sequence[Group], figures: dict[str, str]) -> dict[str, list[str]]:
    """Return the column of differences to the baseline; none without exactly one such group."""
    key = "test" if any(group.test.num for group in groups) else "val"
    baselines = [group for group in groups if group.method == BASELINE]
    base = getattr(baselines[0], key).mean if len(baselines) == 1 else None
    if base is None:
        return {}
    means = [None if group is baselines[0] else getattr(group, key).mean for group in groups]
    cells = [signed(None if mean is None else mean - base) for mean in means]
    return {f"{figures[key]} − {BASELINE}": cells}


def _best(groups: Sequence[Group], key: str) -> list[int]:
    """Return the rows with the highest figure as printed, among methods without complete labels."""
    means = [getattr(group, key).mean for group in groups]
    rivals = {
        row: mean
        for row, mean in enumerate(means)
        if mean is not None and groups[row].method != BOUND
    }
    highest = percent(max(rivals.values(), default=None))
    return [row for row, mean in rivals.items() if percent(mean) == highest]


def _note(ranked: bool, val_figure: str, selection: str | None) -> str:
    note = "Percent, mean ± sample standard deviation over the finished runs."
    if ranked:
        note += " The best method trained on single labels is in bold."
    if selection is not None:
        note += f" Epochs were chosen on {selection}."
    if val_figure == "estimate":
        note += f" {ESTIMATE}"
    return note


def _tags(group: Group) -> list[str]:
    tags = ["complete labels"] if group.method == BOUND else []
    if unfinished := len(group.runs) - len(group.finished):
        tags.append(f"{unfinished} unfinished")
    return tags
