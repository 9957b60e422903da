"""The table of a bench: one row for each case, computed from records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from spml.bench.plan import Outcomes, Plan, Record, benchmark, done_in
from spml.bench.published import COLUMNS, Quote, other_quotes, paper_quote
from spml.metrics.bootstrap import Comparison, Measured, compare
from spml.report.format import chosen_by
from spml.report.groups import Summary

THIRDS = ("head", "middle", "tail")


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        test: test mAP over seeds; the validation figure if the data have no test split.
        thirds: AP of the most observed, middle and least observed third of classes.
        seeds, wanted: numbers of finished and of planned final runs.
        versus: comparison with the row that all are compared with.
        quoted: the paper's figure on each benchmark.
        elsewhere: figures of the same method on these data from other publications.
    """

    label: str
    test: Summary
    val: Summary
    thirds: dict[str, Summary]
    seeds: int
    wanted: int
    chosen: str
    errors: tuple[str, ...]
    failed: int
    versus: Comparison | None
    quoted: dict[str, Quote]
    elsewhere: tuple[Quote, ...]


@dataclass(frozen=True)
class Table:
    """A table of results, compared with the row `against`.

    `figure` is "test mAP", or without a test split `chosen_by`, the figure that chose the epochs:
    validation mAP, or its estimate from observed labels. `selection` names these labels.
    """

    title: str
    data: str
    figure: str
    chosen_by: str
    selection: str
    against: str | None
    rows: tuple[Row, ...]


def collected(plan: Plan, outcomes: Outcomes) -> Record:
    """Return the bench.json document: rows with the ids of their runs, and all records."""
    rows: list[Record] = []
    records: dict[str, Record | None] = {}
    for case in plan.cases:
        trials, finals = plan.trials(case, outcomes), plan.finals(case, outcomes)
        best = plan.chosen(case, outcomes)
        row = {
            "label": case.label,
            "method": case.method,
            "data": case.data or plan.data,
            "wanted": plan.wanted,
            "trials": [run.id for run in trials],
            "finals": [run.id for run in finals],
            "chosen": None,
        }
        if best is not None:
            row["chosen"] = {"options": best.options, "lr": best.settings.get("lr")}
        rows.append(row)
        records |= {run.id: outcomes(run.id) for run in trials + finals}
    return {
        "table": plan.table,
        "data": plan.data,
        "settings": plan.settings,
        "seeds": list(plan.seeds),
        "rows": rows,
        "runs": {name: record for name, record in records.items() if record is not None},
    }


def table(stored: Record, against: str | None = None) -> Table:
    """Compute the table of a bench.json document, with comparisons if it has a row `against`."""
    runs: Mapping[str, Record] = stored["runs"]
    done = {row["label"]: _done(row["finals"], runs) for row in stored["rows"]}
    every = [record["result"] for records in done.values() for record in records]
    key = shown_figure(every)
    base = done.get(against or "", [])
    data = benchmark(stored["data"])
    rows = []
    for row in stored["rows"]:
        label, own = row["label"], done[row["label"]]
        results = [record["result"] for record in own]
        names = [*row["trials"], *row["finals"]]
        failed = [runs[name]["error"] for name in names if "error" in runs.get(name, {})]
        quotes = {name: quote for name in COLUMNS if (quote := paper_quote(label, name))}
        one = Row(
            label=label,
            test=Summary.of([result.get(key) for result in results]),
            val=Summary.of([result.get("val_map") for result in results]),
            thirds=by_third(own),
            seeds=len(own),
            wanted=row["wanted"],
            chosen=_chosen(row.get("chosen")),
            errors=tuple(dict.fromkeys(failed)),
            failed=len(failed),
            versus=None if label == against else _versus(own, base, key),
            quoted=quotes if data in COLUMNS else {},
            elsewhere=tuple(other_quotes(label, data)),
        )
        rows.append(one)
    kinds = sorted({str(result["selection"]) for result in every})
    figure = f"validation {chosen_by(kinds)}"
    return Table(
        str(stored["table"]),
        str(stored["data"]),
        "test mAP" if key == "test_map" else figure,
        figure,
        ", ".join(kinds),
        against if base else None,
        tuple(rows),
    )


def shown_figure(results: Sequence[Record]) -> Literal["test_map", "val_map"]:
    """Return the figure that rows show: validation if there are results and none has a test mAP."""
    untested = bool(results) and all(result.get("test_map") is None for result in results)
    return "val_map" if untested else "test_map"


def _done(ids: Sequence[str], runs: Mapping[str, Record]) -> list[Record]:
    return [record for name in ids if (record := runs.get(name)) is not None and done_in(record)]


def _chosen(best: Record | None) -> str:
    if best is None:
        return ""
    options = "".join(f", {name}={json.dumps(value)}" for name, value in best["options"].items())
    return f"lr={best['lr']:g}{options}"


def _versus(own: list[Record], base: list[Record], key: str) -> Comparison | None:
    """Compare with the base row's runs of the same draws and seeds, on the resamples they share."""

    def drawn(record: Record) -> tuple[int | None, int, int, int]:
        resampled = record["bootstrap"]
        return draw_of(record), record["seed"], resampled["seed"], resampled["images"]

    rivals = {drawn(record): record for record in base if "bootstrap" in record}
    resampled = [record for record in own if "bootstrap" in record]
    pairs = [(record, rivals[drawn(record)]) for record in resampled if drawn(record) in rivals]
    if not pairs or key != "test_map":
        return None
    return compare(*([_measured(record) for record in part] for part in zip(*pairs, strict=True)))


def draw_of(record: Record) -> int | None:
    """Return the seed that drew a run's observed labels."""
    draw: int | None = record.get("config", {}).get("observe_seed")
    return draw


def _measured(record: Record) -> Measured:
    maps = record["bootstrap"]["maps"]
    return Measured(draw_of(record), record["seed"], record["result"]["test_map"], maps)


def by_third(done: Sequence[Record]) -> dict[str, Summary]:
    """Return the mean AP of each third of the classes, ordered by their observed positives.

    Classes with equal counts keep their order.
    """
    values: dict[str, list[float]] = {name: [] for name in THIRDS}
    for record in done:
        precisions, counts = record["result"].get("per_class_ap"), record.get("observed_counts")
        if not precisions or counts is None or len(counts) < len(THIRDS):
            continue
        order = np.argsort(-np.asarray(counts), kind="stable")
        ranked = np.asarray(list(precisions.values()))[order]
        for name, part in zip(THIRDS, np.array_split(ranked, len(THIRDS)), strict=True):
            values[name].append(float(part.mean()))
    return {name: Summary.of(part) for name, part in values.items()}
