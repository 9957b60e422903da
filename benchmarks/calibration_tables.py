"""The tables of docs/calibration.md, from the records of calibration.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import put_table

Record = dict[str, Any]
OURS, FULL = "draw, temperature", "complete, temperature"
BASELINES = ("threshold 0.5", "top k, k given", "k × observed share")


def read(folder: Path) -> list[Record]:
    return [
        record
        for path in sorted(folder.glob("calibration-*.json"))
        for record in json.loads(path.read_text())
    ]


def put_tables(page: Path, folder: Path) -> None:
    for name, table in tables(read(folder)).items():
        put_table(page, name, table)


def tables(records: list[Record]) -> dict[str, str]:
    return {
        "calibration_verdict": verdict(records),
        "calibration_test": test(records),
        "calibration_runs": runs(records),
        "calibration_priors": priors(records),
        "calibration_halves": halves(records),
        "calibration_estimates": estimates(records),
        "calibration_selection": selection(records),
    }


def groups(records: list[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["data"], []).append(record)
    return found


def mean(records: list[Record], way: str, figure: str) -> float | None:
    values = [record["test"][way].get(figure) for record in records]
    return None if any(value is None for value in values) else float(np.mean(values))


def verdict(records: list[Record]) -> str:
    """Whether (b) beats every baseline on every data set, in either F1, and how far it is from (a)."""
    words, unbeaten = [], []
    for data, group in groups(records).items():
        for figure in ("macro_f1", "micro_f1"):
            ours = mean(group, OURS, figure) or 0.0
            for name in BASELINES:
                if (other := mean(group, name, figure) or 0.0) >= ours:
                    title = figure.replace("_f1", "-F1")
                    unbeaten.append(f"“{name}” on {data} ({title} {other:.2f} against {ours:.2f})")
        ours, best = (mean(group, way, "macro_f1") or 0.0 for way in (OURS, FULL))
        words.append(f"{data} {ours - best:+.2f}")
    beaten = "beats all three baselines on all of these data, in macro-F1 and in micro-F1"
    said = (
        f"does **not** beat {'; '.join(unbeaten)}, and beats the baselines elsewhere"
        if unbeaten
        else beaten
    )
    gap = f"its macro-F1 less that of complete labels: {', '.join(words)}"
    return (
        f"Calibration from single positives {said}; {gap}. These are means over methods and seeds."
    )


def cell(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def test(records: list[Record]) -> str:
    lines = []
    for data, group in groups(records).items():
        runs = len({(r["method"], r["seed"]) for r in group})
        lines += [f"**{data}**, {runs} runs × {len(group) // runs} draws", ""]
        lines += [
            "| thresholds and probabilities from | macro-F1 | micro-F1 | ECE, % | macro-F1 from (a) |"
        ]
        lines += ["|---|---|---|---|---|"]
        for way in group[0]["test"]:
            cells = [cell(mean(group, way, name), 2) for name in ("macro_f1", "micro_f1", "ece")]
            gaps = [r["test"][way]["macro_f1"] - r["test"][FULL]["macro_f1"] for r in group]
            gap = f"{np.mean(gaps):+.2f} ± {np.std(gaps):.2f}" if way != FULL else ""
            bold = {FULL: "**(a)** ", OURS: "**(b)** "}.get(way, "")
            lines.append(f"| {bold}{way} | " + " | ".join(cells) + f" | {gap} |")
        lines.append("")
    return "\n".join(lines[:-1])


def runs(records: list[Record]) -> str:
    lines = [
        "| data | method | seeds | test mAP | (a) | (b) | (b) − (a) | best of the baselines |",
        "|---" * 8 + "|",
    ]
    for data, group in groups(records).items():
        for method in sorted({r["method"] for r in group}):
            own = [r for r in group if r["method"] == method]
            a, b = mean(own, FULL, "macro_f1") or 0.0, mean(own, OURS, "macro_f1") or 0.0
            rest = max(mean(own, name, "macro_f1") or 0.0 for name in BASELINES)
            seeds, ranks = len({r["seed"] for r in own}), np.mean([r["test_map"] for r in own])
            lines.append(
                f"| {data} | {method} | {seeds} | {ranks:.1f} | {a:.2f} | {b:.2f} | {b - a:+.2f} | {rest:.2f} |"
            )
    return "\n".join(lines)


def priors(records: list[Record]) -> str:
    ways = (OURS, "inverse propensity", "CRISP priors", "k × observed share")
    lines = [
        "| data | method | true positives per item | estimated | mean error of a class's prior, points: "
    ]
    lines[0] += " | ".join(("draw", *ways[1:])) + " |"
    lines.append("|---" * (4 + len(ways)) + "|")
    for data, group in groups(records).items():
        for method in sorted({r["method"] for r in group}):
            own = [r for r in group if r["method"] == method]
            true, told = (
                np.mean([r["positives"] for r in own]),
                [r["test"][OURS]["positives"] for r in own],
            )
            errors = " | ".join(cell(mean(own, way, "prior_error"), 2) for way in ways)
            lines.append(
                f"| {data} | {method} | {true:.2f} | {np.mean(told):.2f} ± {np.std(told):.2f} | {errors} |"
            )
    return "\n".join(lines)


def halves(records: list[Record]) -> str:
    ways = [
        way for way in records[0]["halves"] if way.split(",")[0] not in ("complete", *BASELINES)
    ]
    ways = [way for way in ways if way not in BASELINES]
    found = groups(records)
    lines = ["| | " + " | ".join(found) + " | mean |", "|---" * (2 + len(found)) + "|"]
    for way in ways:
        values = [float(np.mean([r["halves"][way] for r in group])) for group in found.values()]
        lines.append(
            f"| {way} | " + " | ".join(f"{v:.2f}" for v in values) + f" | {np.mean(values):.2f} |"
        )
    return "\n".join(lines)


def estimates(records: list[Record]) -> str:
    names = {
        "map": "mAP",
        "macro_precision": "precision",
        "macro_recall": "recall",
        "macro_f1": "macro-F1",
    }
    names |= {"micro_f1": "micro-F1"}
    lines = [
        "| data | figure | true | estimated | mean distance | true one inside the range |",
        "|---" * 6 + "|",
    ]
    for data, group in groups(records).items():
        for key, title in names.items():
            pairs = [r["estimates"][key] for r in group]
            true, told = np.array([p["true"] for p in pairs]), np.array([p["told"] for p in pairs])
            inside = np.mean((told[:, 1] <= true) & (true <= told[:, 2]))
            distance = 100 * np.abs(told[:, 0] - true).mean()
            figures = f"{100 * true.mean():.1f} | {100 * told[:, 0].mean():.1f} | {distance:.1f} | {inside:.0%}"
            lines.append(f"| {data} | {title} | {figures} |")
    return "\n".join(lines)


def selection(records: list[Record]) -> str:
    found, own = groups(records), [r for r in records if r["method"] != "full"]
    head = " | ".join(f"{data}: lost, distance" for data in found)
    lines = [
        f"| estimator | {head} | lost, all | most | lost, all but `full` | chooses better, worse than observed AP |"
    ]
    lines.append("|---" * (5 + len(found)) + "|")
    for name in records[0]["epochs"]:
        if name == "true":
            continue
        cells = []
        for group in found.values():
            ends = [abs(r["epochs"][name][-1] - r["epochs"]["true"][-1]) for r in group]
            distance = "–" if name == "likelihood of the draw" else f"{np.mean(ends):.1f}"
            cells.append(f"{np.mean([lost(r, name) for r in group]):.2f}, {distance}")
        every = [lost(r, name) for r in records]
        cells += [
            f"{np.mean(every):.2f}",
            f"{max(every):.2f}",
            f"{np.mean([lost(r, name) for r in own]):.2f}",
        ]
        gains = np.array([lost(r, "observed AP") - lost(r, name) for r in own])
        cells.append(
            ""
            if name == "observed AP"
            else f"{(gains > 0).sum()}, {(gains < 0).sum()} of {len(own)}"
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def lost(record: Record, name: str) -> float:
    """Best true mAP of the epochs less that of the epoch that a figure chooses."""
    true = record["epochs"]["true"]
    return float(max(true) - true[int(np.argmax(record["epochs"][name]))])
