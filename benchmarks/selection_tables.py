"""The tables of docs/selection.md, from the records of the studies of selection.

python benchmarks/selection_tables.py docs/selection.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import put_table

RESULTS = Path(__file__).parent / "results"


def tables() -> dict[str, str]:
    """The tables by name."""
    pictures, features = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["sets"]
        for name in ("selection", "selection-features")
    )
    lines = {
        "criteria": criteria_table(pictures),
        "race": race_table(pictures),
        "average": average_table(pictures),
        "rates": rates_table(pictures),
        "settings": settings_table(pictures),
        "features_criteria": features_criteria_table(features),
        "features_races": features_races_table(features),
    }
    return {name: "\n".join(rows) for name, rows in lines.items()}


def criteria_table(sets: dict[str, Any]) -> Iterator[str]:
    names = list(next(iter(sets.values()))["criteria"])
    yield f"| set | rows | observed a class | positives an item (estimated) | {' | '.join(names)} |"
    yield "|---" * (4 + len(names)) + "|"
    for name, one in sets.items():
        cells = [
            f"{row['correlation']:.2f} ({row['regret']:.1f})" for row in one["criteria"].values()
        ]
        number = f"{one['positives']:.2f} ({one['estimated_positives']:.2f})"
        first = f"| {name} | {one['rows']:,} | {one['observed_per_class']:.0f} | {number} | "
        yield f"{first}{' | '.join(cells)} |"


def race_table(sets: dict[str, Any]) -> Iterator[str]:
    yield "| set | winner | lead | test mAP | − an | best of the portfolio | regret |"
    yield "|---|---|---|---|---|---|---|"
    regrets, gains = [], []
    for name, one in sets.items():
        race = one["race"]
        if race is None:
            continue
        regret, gain = race["best_test"] - race["test"], race["test"] - race["an"]
        regrets.append(regret)
        gains.append(gain)
        lead = f"{race['lead']:.1f} ± {race['error']:.1f}"
        best = f"{race['best']}, {race['best_test']:.2f}"
        yield (
            f"| {name} | {race['winner']} | {lead} | {race['test']:.2f} | {gain:+.2f} "
            f"| {best} | {regret:.2f} |"
        )
    yield (
        f"| mean of {len(regrets)} | | | | {np.mean(gains):+.2f} (lowest {min(gains):+.2f}) | "
        f"| {np.mean(regrets):.2f} (highest {max(regrets):.2f}) |"
    )


def average_table(sets: dict[str, Any]) -> Iterator[str]:
    measured = {name: one["average_gain"] for name, one in sets.items() if one["average_gain"]}
    names = list(next(iter(measured.values())))
    yield f"| set | {' | '.join(names)} |"
    yield "|---" * (1 + len(names)) + "|"
    for name, gains in measured.items():
        yield f"| {name} | {' | '.join(f'{gains[key]:+.2f}' for key in names)} |"


def rates_table(sets: dict[str, Any]) -> Iterator[str]:
    wanted = ("voc-20%", "voc-10%", "coco-3000")
    yield "| set | method | a third of 5e-5 | 5e-5 | three times |"
    yield "|---|---|---|---|---|"
    for name in wanted:
        for method in ("an", "ll_r", "wan", "em .05", "em .2", "gr voc", "gr coco"):
            rates = sets[name]["test_map"][method]
            cells = [f"{rates[rate]:.2f}" if rate in rates else "–" for rate in ("0.33", "1", "3")]
            yield f"| {name} | {method} | {' | '.join(cells)} |"


def settings_table(sets: dict[str, Any]) -> Iterator[str]:
    names = ("an", "gr voc", "gr coco", "epr 1.5", "epr 3")
    yield f"| set | observed a class, validation | {' | '.join(names)} |"
    yield "|---" * (2 + len(names)) + "|"
    for name, one in sets.items():
        cells = [f"{one['test_map'][method]['1']:.2f}" for method in names]
        yield f"| {name} | {one['observed_per_class']:.0f} | {' | '.join(cells)} |"


def features_criteria_table(sets: dict[str, Any]) -> Iterator[str]:
    usual = "regret at the usual rate"
    yield "| criterion | mean rank correlation | lowest | mean regret at the usual rate | highest |"
    yield "|---|---|---|---|---|"
    for name in next(iter(sets.values()))["criteria"]:
        rows = [one["criteria"][name] for one in sets.values() if name in one["criteria"]]
        key = "correlation" if "correlation" in rows[0] else "correlation at the usual rate"
        order = [row[key] for row in rows]
        regrets = [row[usual] for row in rows]
        title = name if len(rows) == len(sets) else f"{name} ({len(rows)} sets, usual rate)"
        yield (
            f"| {title} | {np.mean(order):.2f} | {min(order):.2f} "
            f"| {np.mean(regrets):.2f} | {max(regrets):.2f} |"
        )


RACES = ("the race", "all nine to the end", "all nine at three rates", "cross-fitted")


def features_races_table(sets: dict[str, Any]) -> Iterator[str]:
    names = ("an", *RACES, "best of nine")
    yield f"| set | training rows | observed a class | {' | '.join(names)} |"
    yield "|---" * (3 + len(names)) + "|"
    for name, one in sets.items():
        cells = [_figure(one["choices"][choice]) for choice in names]
        first = f"| {name} | {one['rows']:,} | {one['observed_per_class']:.0f} | "
        yield f"{first}{' | '.join(cells)} |"
    few = [name for name in sets if sets[name]["choices"]["cross-fitted"] is not None]
    for title, kept in ((f"{len(sets)} sets", list(sets)), (f"{len(few)} cross-fitted sets", few)):
        for what in ("mean regret (highest)", "lowest − an"):
            cells = [_summary(sets, kept, choice, what) for choice in RACES]
            yield f"| {title}, {what} | | | | {' | '.join(cells)} | |"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _summary(sets: dict[str, Any], kept: list[str], choice: str, what: str) -> str:
    chosen = [sets[name]["choices"] for name in kept]
    if any(one[choice] is None for one in chosen):
        return "–"
    if what == "lowest − an":
        return f"{min(one[choice] - one['an'] for one in chosen):+.2f}"
    regrets = [one["best of nine"] - one[choice] for one in chosen]
    return f"{np.mean(regrets):.2f} ({max(regrets):.2f})"


def main() -> None:
    for name, table in tables().items():
        put_table(Path(sys.argv[1]), name, table)


if __name__ == "__main__":
    main()
