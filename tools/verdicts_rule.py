"""The rule of verdicts_check.py for a difference, and the run files that it reads."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "benchmarks" / "results" / "voc2012-lite0"
YES, PARTLY, NO, EITHER = "agrees", "agrees in part", "does not agree", "undecided"
Array = npt.NDArray[Any]
Runs = list[dict[str, Any]]


@dataclass(frozen=True)
class Gap:
    """A difference with its interval, and whether it counts."""

    value: float
    low: float
    high: float
    runs: int

    @property
    def sign(self) -> int:
        """1 or -1 if the difference counts, else 0."""
        if self.runs == 1:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


def gap_of(values: Array, covariance: Array, seeds: Sequence[Any], draws: Sequence[Any]) -> Gap:
    """The rule, from paired differences and their covariance over images."""
    number = len(values)
    apart = [covariance[i, j] for i, j in combinations(range(number), 2)]
    images = max(float(np.mean(apart)), 0.0) if apart else float(covariance[0, 0])
    parts = []
    for levels in (seeds, draws):
        means = [
            float(np.mean([v for v, own in zip(values, levels, strict=True) if own == level]))
            for level in sorted(set(levels), key=str)
        ]
        if len(means) > 1:
            centre = sum(means) / len(means)
            squares = sum((mean - centre) ** 2 for mean in means)
            parts.append((squares / (len(means) - 1) / len(means), len(means) - 1))
    total = max(images + sum(part for part, _ in parts), float(covariance.mean()))
    doubt = sum(part * part / freedom for part, freedom in parts)
    reach = student.ppf(0.975, total * total / doubt if doubt else 1e12) * total**0.5
    middle = float(np.mean(values))
    return Gap(middle, middle - reach, middle + reach, number)


def draw(record: dict[str, Any]) -> int:
    """Seed that drew the observed labels of a run."""
    return int(record["config"]["observe_seed"])


class Listed:
    """The list of runs, and their files."""

    def __init__(self) -> None:
        with (ROOT / "docs" / "voc2012-runs.csv").open(encoding="utf-8") as file:
            self.rows = list(csv.DictReader(file))
        self.files = {path.name: json.loads(path.read_text()) for path in RUNS.glob("*.json")}

    def finals(self, table: str, row: str) -> Runs:
        """Finished final runs of a row."""
        listed = [one for one in self.rows if (one["table"], one["row"]) == (table, row)]
        files = [self.files[one["record"]] for one in listed if one["part"] == "final"]
        return [record for record in files if "result" in record]

    def labels(self, table: str) -> list[str]:
        """Rows of a table."""
        return list(dict.fromkeys(one["row"] for one in self.rows if one["table"] == table))

    def gap(self, table: str, row: str, base: str) -> Gap:
        """Difference of two rows of a table, paired by draw and seed."""
        rivals = {(draw(r), r["seed"]): r for r in self.finals(table, base)}
        pairs = [
            (r, rivals[draw(r), r["seed"]])
            for r in self.finals(table, row)
            if (draw(r), r["seed"]) in rivals
        ]
        values = np.array([a["result"]["test_map"] - b["result"]["test_map"] for a, b in pairs])
        drawn = [
            np.array(a["bootstrap"]["maps"]) - np.array(b["bootstrap"]["maps"]) for a, b in pairs
        ]
        own = [a for a, _ in pairs]
        covariance = np.cov(drawn).reshape(len(own), len(own))
        return gap_of(values, covariance, [r["seed"] for r in own], [draw(r) for r in own])

    def main(self) -> str:
        """The table with equal budgets once all its rows have five seeds."""
        rows = self.labels("equal budgets")
        done = len(rows) == 13 and all(len(self.finals("equal budgets", r)) == 5 for r in rows)
        return "equal budgets" if done else "Table B"

    def widest(self, row: str, base: str) -> Gap:
        """Difference over draws if both rows have three, else from the main table."""
        both = all(len(self.finals("draws", one)) == 9 for one in (row, base))
        return self.gap("draws" if both else self.main(), row, base)

    def problems(self) -> list[str]:
        """Figures that differ from the run files, and choices that are not the best trial."""
        wrong = []
        for one in self.rows:
            result = self.files[one["record"]].get("result", {})
            for column, key in (("test mAP", "test_map"), ("validation mAP", "val_map")):
                if result and f"{result[key]:.2f}" != one[column]:
                    wrong.append(f"{one['record']}: {column} {one[column]}")
        for table in dict.fromkeys(one["table"] for one in self.rows):
            for row in self.labels(table):
                wrong += self._choice(table, row)
        return wrong

    def _choice(self, table: str, row: str) -> list[str]:
        listed = [one for one in self.rows if (one["table"], one["row"]) == (table, row)]
        trials = [self.files[one["record"]] for one in listed if "trial" in one["part"]]
        chosen = [self.files[one["record"]] for one in listed if one["part"] == "chosen trial"]
        finals = self.finals(table, row)
        settings = [
            {**r["settings"], "observe_seed": 0, "o": r["options"]} for r in finals + chosen
        ]
        wrong = [] if all(s == settings[0] for s in settings) else [f"{table}, {row}: settings"]
        best = max((t["result"]["val_map"] for t in trials if "result" in t), default=None)
        if chosen and chosen[0]["result"]["val_map"] != best:
            wrong.append(f"{table}, {row}: the chosen trial is not the best")
        return wrong


Found = tuple[list[Gap], str]


def all_of(signs: Iterable[int]) -> str:
    """Every difference must count."""
    known = list(signs)
    return NO if min(known) < 0 else YES if min(known) > 0 else EITHER


def some_of(signs: Iterable[int]) -> str:
    """Each difference counts for its part."""
    known = list(signs)
    if max(known) > 0:
        return YES if min(known) > 0 else PARTLY
    return NO if min(known) < 0 else EITHER


def thirds(counts: Sequence[int]) -> tuple[Array, Array]:
    """Columns of the classes with most and with fewest observed positives."""
    parts = np.array_split(np.argsort(-np.asarray(counts), kind="stable"), 3)
    return parts[0], parts[2]
