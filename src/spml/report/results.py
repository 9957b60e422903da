"""The table of results that opens a comparison page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spml.report.format import NONE, percent, signed
from spml.report.groups import Group

BASELINE, BOUND = "an", "full"
ESTIMATE = "Without complete labels mAP is unknown: the estimate only ranks runs on the same data."


@dataclass(frozen=True)
class ResultTable:
    """A table of results as text; the first column names the rows.

    Attributes:
        title: heading; empty if the page's title says enough.
        notes: sentences below the table.
        best: positions (row, column) of cells in bold.
        tags: labels next to the names of rows, by row.
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
    """Return the table of a comparison, a row for each group.

    Args:
        groups: runs that differ only in their seeds.
        comparable: whether all runs use the same data.
        val_figure: the figure that chose the epochs, "mAP" or "estimate".
        selection: the labels that chose the epochs; None if the runs used different ones.
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
