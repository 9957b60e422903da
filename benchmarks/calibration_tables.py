"""The tables of docs/calibration.md, from the records of calibration.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import put_table

Record = dict[str, Any]
OURS, FULL = "draw, temperature", "complete, temperature"
BASELINES = ("threshold 0.5", "top k, k given", "k × observed share")
ROWS = {
    FULL: "**(a)** complete labels",
    OURS: "**(b)** observed labels",
    "draw, isotonic": "(b) with `--method isotonic`",
    "draw, k given": "(b) with `--positives-per-item` k",
    "threshold 0.5": "threshold 0.5",
    "top k, k given": "top k",
    "k × observed share": "k × observed share",
}


def read(folder: Path) -> list[Record]:
    return [
        record
        for path in sorted(folder.glob("calibration-*.json"))
        for record in json.loads(path.read_text())
    ]


def made_up(folder: Path) -> list[Record]:
    """The records of coverage.py."""
    records: list[Record] = json.loads((folder / "coverage.json").read_text())
    return records


def put_tables(page: Path, folder: Path) -> None:
    for name, table in tables(read(folder), made_up(folder)).items():
        put_table(page, name, table)


def tables(records: list[Record], more: Sequence[Record] = ()) -> dict[str, str]:
    """The tables by name; `more` holds estimates alone."""
    return {
        "calibration_verdict": verdict(records),
        "calibration_test": test(records),
        "calibration_estimates": estimates([*records, *more]),
        "calibration_selection": selection(records),
    }


def groups(records: list[Record]) -> dict[str, list[Record]]:
    by_data: dict[str, list[Record]] = {}
    for record in records:
        by_data.setdefault(record["data"], []).append(record)
    return by_data


def mean(records: list[Record], way: str, figure: str) -> float | None:
    values = [record["test"][way].get(figure) for record in records]
    return None if any(value is None for value in values) else float(np.mean(values))


def verdict(records: list[Record]) -> str:
    """State whether (b) beats every baseline on every data set, and its distance from (a)."""
    gaps, unbeaten = [], []
    for data, group in groups(records).items():
        for figure in ("macro_f1", "micro_f1"):
            ours = mean(group, OURS, figure) or 0.0
            for name in BASELINES:
                if (other := mean(group, name, figure) or 0.0) >= ours:
                    title = figure.replace("_f1", "-F1")
                    unbeaten.append(f"“{name}” on {data} ({title} {other:.2f} against {ours:.2f})")
        ours, best = (mean(group, way, "macro_f1") or 0.0 for way in (OURS, FULL))
        gaps.append(f"{data} {ours - best:+.2f}")
    if unbeaten:
        result = f"does **not** beat {'; '.join(unbeaten)}; it beats the baselines elsewhere"
    else:
        result = "beats all three baselines on all of these data, in macro-F1 and in micro-F1"
    lines = [
        f"Calibration from single positives {result}.",
        f"Difference in macro-F1 from calibration with complete labels: {', '.join(gaps)}.",
        "Means over methods and seeds.",
    ]
    return "\n".join(lines)


def cell(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def test(records: list[Record]) -> str:
    lines = []
    for data, group in groups(records).items():
        runs = len({(r["method"], r["seed"]) for r in group})
        lines += [f"**{data}**, {runs} runs × {len(group) // runs} draws", ""]
        lines += [
            "| calibrated with | macro-F1 | micro-F1 | ECE, % | macro-F1 − (a) |",
        ]
        lines += ["|---|---|---|---|---|"]
        for way, title in ROWS.items():
            cells = [cell(mean(group, way, name), 2) for name in ("macro_f1", "micro_f1", "ece")]
            gaps = [r["test"][way]["macro_f1"] - r["test"][FULL]["macro_f1"] for r in group]
            gap = f"{np.mean(gaps):+.2f} ± {np.std(gaps):.2f}" if way != FULL else ""
            lines.append(f"| {title} | " + " | ".join(cells) + f" | {gap} |")
        lines.append("")
    return "\n".join(lines[:-1])


def held(records: list[Record], key: str, truth: str = "true") -> float:
    """Share of estimates whose range holds the truth; each pair of data and method counts once."""
    pairs: dict[tuple[str, str], list[bool]] = {}
    for record in records:
        figure = record["estimates"][key]
        _, low, high = figure["told"]
        inside = low <= figure[truth] <= high
        pairs.setdefault((record["data"], record["method"]), []).append(inside)
    return float(np.mean([np.mean(inside) for inside in pairs.values()]))


def estimates(records: list[Record]) -> str:
    others = ("macro_precision", "macro_recall", "micro_f1", "positives_per_item")
    lines = [
        "| data | methods | mAP: true, estimated, mean range | held | macro-F1 | held "
        "| precision | recall | micro-F1 | positives an item |",
        "|---" * 10 + "|",
    ]
    new = [record for record in records if "test" in record["estimates"]["map"]]
    rows = {**groups(records), "**all**": records}
    if new:
        rows["**made-up data, new items**"] = new
    for data, group in rows.items():
        truth = "test" if group is new else "true"
        methods = len({(record["data"], record["method"]) for record in group})
        cells = [str(methods)]
        for key in ("map", "macro_f1"):
            figures = [record["estimates"][key] for record in group]
            true = 100 * np.mean([figure["true"] for figure in figures])
            value, low, high = 100 * np.mean([figure["told"] for figure in figures], axis=0)
            means = f"{true:.1f}, {value:.1f}, {low:.0f}–{high:.0f}"
            cells += ["" if data.startswith("**") else means, f"{held(group, key, truth):.0%}"]
        cells += [f"{held(group, key, truth):.0%}" for key in others]
        lines.append(f"| {data} | {' | '.join(cells)} |")
    return "\n".join(lines)


def selection(records: list[Record]) -> str:
    by_data, own = groups(records), [r for r in records if r["method"] != "full"]
    titles = {"observed AP": "observed AP (the default)", "draw": "estimated mAP"}
    heads = ["chosen by", *(f"{data}: lost, error" for data in by_data)]
    heads += ["lost, all", "most", "lost, without `full`", "better, worse than the default"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in records[0]["epochs"]:
        if name == "true":
            continue
        cells = []
        for group in by_data.values():
            ends = [abs(r["epochs"][name][-1] - r["epochs"]["true"][-1]) for r in group]
            error = "–" if name == "likelihood of the draw" else f"{np.mean(ends):.1f}"
            cells.append(f"{np.mean([lost(r, name) for r in group]):.2f}, {error}")
        losses = [lost(r, name) for r in records]
        cells += [f"{np.mean(losses):.2f}", f"{max(losses):.2f}"]
        cells.append(f"{np.mean([lost(r, name) for r in own]):.2f}")
        gains = np.array([lost(r, "observed AP") - lost(r, name) for r in own])
        counts = f"{(gains > 0).sum()}, {(gains < 0).sum()} of {len(own)}"
        cells.append("" if name == "observed AP" else counts)
        lines.append(f"| {titles.get(name, name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def lost(record: Record, name: str) -> float:
    """Return the best true mAP of all epochs minus that of the epoch a figure chooses."""
    true = record["epochs"]["true"]
    return float(max(true) - true[int(np.argmax(record["epochs"][name]))])
