"""The table of results that opens a comparison page; a page of tables alone serves `spml bench`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from spml.report.format import NONE, percent, signed
from spml.report.groups import Group, Summary

BASELINE, BOUND = "an", "full"
ESTIMATE = "Without complete labels mAP is unknown: the estimate only ranks runs on the same data."


@dataclass(frozen=True)
class ResultTable:
    """A table of results as text.

    Attributes:
        title: heading; empty if the page's title says enough.
        header: names of the columns. The first column names the rows.
        rows: cells of each row.
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


def results_page(title: str, subtitle: str, tables: Sequence[ResultTable]) -> str:
    """Return a self-contained HTML page of tables, without the run folders behind them."""
    from spml.report.format import render

    values = {"title": title, "subtitle": subtitle, "notes": [], "tables": tables}
    return render("results.html", values)


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
    outcome = results(groups, comparable=comparable, one_selection=selection is not None)
    shown = "test mAP" if outcome["key"] == "test" else f"validation {val_figure}"
    columns = [("method", "label"), ("test mAP", "test")]
    if outcome["has_base"]:
        columns.append((f"{shown} − {BASELINE}", "difference"))
    columns.append((f"validation {val_figure}", "val"))
    if outcome["mixed_selection"]:
        columns.append(("epoch chosen on", "selection"))
    columns.append(("seeds", "seeds"))
    rows = outcome["rows"]
    keys = [key for _, key in columns]
    return ResultTable(
        title="",
        header=[name for name, _ in columns],
        rows=[[row[key] for key in keys] for row in rows],
        notes=[_note(outcome["ranked"], val_figure, selection)],
        best=frozenset(
            (number, keys.index(key))
            for number, row in enumerate(rows)
            for key in ("test", "val")
            if row[f"{key}_best"]
        ),
        tags={number: _tags(row) for number, row in enumerate(rows)},
    )


def _note(ranked: bool, val_figure: str, selection: str | None) -> str:
    note = "Percent, mean ± sample standard deviation over the finished runs"
    note += "; the best is bold." if ranked else "."
    if selection is not None:
        note += f" Epochs were chosen on {selection}."
    if val_figure == "estimate":
        note += " " + ESTIMATE
    return note


def _tags(row: dict[str, Any]) -> list[str]:
    tags = ["complete labels"] if row["bound"] else []
    if row["open"]:
        tags.append(f"{row['open']} unfinished")
    return tags


def results(groups: Sequence[Group], *, comparable: bool, one_selection: bool) -> dict[str, Any]:
    """Return a row for each group, with the best figures marked if the runs are comparable."""
    key = "test" if any(group.test.num for group in groups) else "val"
    baselines = [group for group in groups if group.method == BASELINE]
    base = getattr(baselines[0], key).mean if comparable and len(baselines) == 1 else None
    rivals: list[Group] = []
    if comparable and len(groups) > 1:
        rivals = [group for group in groups if group.method != BOUND]
    best = {
        "test": _best([group.test for group in rivals]),
        "val": _best([group.val for group in rivals]) if one_selection else None,
    }
    rows = []
    for group in groups:
        own = getattr(group, key).mean
        difference = None if base is None or own is None or group is baselines[0] else own - base
        row = {
            "label": group.label,
            "bound": group.method == BOUND,
            "difference": signed(difference),
        }
        for name, summary in (("test", group.test), ("val", group.val)):
            ranked = summary.mean is not None and group in rivals
            row[name] = _spread(summary)
            row[f"{name}_best"] = ranked and percent(summary.mean) == best[name]
        row["seeds"] = str(len(group.finished))
        row["open"] = len(group.runs) - len(group.finished)
        row["selection"] = f"{group.runs[0].fact('selection') or NONE} labels"
        rows.append(row)
    return {
        "rows": rows,
        "has_base": base is not None,
        "key": key,
        "ranked": bool(rivals),
        "mixed_selection": not one_selection,
    }


def _best(summaries: Sequence[Summary]) -> str | None:
    means = [summary.mean for summary in summaries if summary.mean is not None]
    return percent(max(means)) if means else None


def _spread(summary: Summary) -> str:
    deviation = "" if summary.std is None else f" ± {percent(summary.std)}"
    return f"{percent(summary.mean)}{deviation}"
