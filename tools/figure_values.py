"""Compute the figures that the documentation quotes in sentences, from recorded results."""

from __future__ import annotations

import json
import math
import re
import statistics
from functools import cache
from pathlib import Path
from typing import Any

from spml.data.benchmarks import paper_counts

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
VOC = "voc2012-lite0"  # folder of one record a run


@cache
def read(name: str) -> Any:
    """A record by its name without `.json`."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


@cache
def voc_runs() -> list[dict[str, Any]]:
    """All recorded runs on VOC2012."""
    paths = sorted((RESULTS / VOC).glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def voc_mean(table: str, row: str) -> float:
    """Mean test mAP of the final runs of a row."""
    return statistics.mean(
        run["result"]["test_map"]
        for run in voc_runs()
        if (run["table"], run["row"], run["stage"]) == (table, row, "final")
    )


def generated(page: str, part: str, row: str) -> list[str]:
    """Cells of a row of a generated table."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text.split(f"<!-- generated: {part} -->\n")[1].split("<!-- end -->")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    (cells,) = [cells for cells in rows if row in cells[0].split(", ")]
    return cells


def number(text: str) -> float:
    """The first number of a cell."""
    match = re.search(r"[\d.]+", text.replace(",", ""))
    if match is None:
        raise ValueError(f"no number in {text!r}")
    return float(match[0])


def gradients() -> float:
    """Megabytes of gradients for the largest size of the table of docs/scaling.md."""
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    (size,) = re.findall(r"([\d.]+) MB for 10⁷ × 10⁴\.", text)
    return float(size)


# Digits.


def digits_mean(setting: str, method: str, figure: str = "test_map") -> float:
    """Mean over the seeds of a row of the grid."""
    return statistics.mean(
        run[figure]
        for run in read("digits-grid")
        if (run["setting"], run["method"]) == (setting, method)
    )


def digits_leads(method: str, other: str) -> list[float]:
    """Leads of a method over another in all settings of the grid."""
    settings = dict.fromkeys(run["setting"] for run in read("digits-grid"))
    return [digits_mean(one, method) - digits_mean(one, other) for one in settings]


def digits_em() -> tuple[float, ...]:
    """Number of rows in which GR leads EM, number of rows, largest lead of either."""
    leads = digits_leads("gr", "em")
    return sum(lead > 0 for lead in leads), len(leads), max(leads)


def lost_by_observed() -> float:
    """Mean validation mAP that GR loses if observed labels choose the epoch."""
    return statistics.mean(
        run["val_map"] - run["observed_choice"]["val_map"]
        for run in read("digits-grid")
        if run["method"] == "gr"
    )


# VOC2012.


def best_at(rate: float) -> tuple[int, int]:
    """Number of methods whose search chose a learning rate, and number of methods searched."""
    best: dict[str, dict[str, Any]] = {}
    for run in voc_runs():
        if (run["table"], run["stage"]) in (("Table B", "trial"), ("Table A", "final")):
            known = best.setdefault(run["method"], run)
            if run["result"]["val_map"] > known["result"]["val_map"]:
                best[run["method"]] = run
    return sum(run["settings"]["lr"] == rate for run in best.values()), len(best)


def missing_of_unknown() -> tuple[int, int, float]:
    """Missing labels, unknown labels and the share in percent, in VOC2012's training split."""
    first = next(run for run in read("review-voc")["records"] if "missing" in run)
    return first["missing"], first["unknown"], 100 * first["missing"] / first["unknown"]


def gr_against_em() -> float:
    """Largest difference between GR and EM with a pretrained backbone."""
    tables = ("Table A", "backbone, Lite2", "backbone, MobileNetV2")
    return max(abs(voc_mean(table, "gr") - voc_mean(table, "em")) for table in tables)


# Review.


def review_precision(data: str, model: str, order: str, depth: int) -> float:
    """Mean precision in percent of the first suggestions."""
    return 100 * statistics.mean(
        run["precision"][order][str(depth)]
        for run in read(f"review-{data}")["records"]
        if (run["stage"], run["row"]) == ("before", model)
    )


def review_gain(row: str) -> tuple[float, float]:
    """Mean and standard deviation of the gain of 500 answers on VOC2012, seed by seed."""
    records = read("review-voc")["records"]
    before = {run["seed"]: run["test_map"] for run in records if run["stage"] == "before"}
    gains = [run["test_map"] - before[run["seed"]] for run in records if run["row"] == row]
    return statistics.mean(gains), statistics.stdev(gains)


# Speed.


def way(name: str) -> dict[str, float]:
    """The recorded experiment of a way to run training."""
    rows = read("kernel-choice-h200")["rows"]
    return next(row for row in rows if (row["kind"], row["way"]) == ("experiment", name))


def compiling() -> tuple[float, ...]:
    """Seconds that compiling takes more to prepare, seconds that it saves, and images.

    The first number of images is that of the experiment, the second that from which it pays.
    """
    graphs, compiled = way("bf16, graphs"), way("bf16, compiled, graphs")
    more = compiled["preparation"] - graphs["preparation"]
    saved = graphs["without_preparation"] - compiled["without_preparation"]
    images = split_sizes("voc")[0] * read("kernel-choice-h200")["asked"]["epochs"]
    return more, saved, images, round(more / saved * images / 1e4) * 10_000


def own_kernels() -> float:
    """How much shorter the removed kernels made an experiment without preparation, in percent."""
    ours, graphs = way("bf16, graphs, our kernels"), way("bf16, graphs")
    return 100 * (1 - ours["without_preparation"] / graphs["without_preparation"])


def query_head() -> float:
    """Millions of parameters of LAGC's head on ResNet-50."""
    rows = read("method-cost")["rows"]
    return next(row["parameter_bytes"] for row in rows if row["row"] == "lagc") / 4e6


# Selection.


def race_gains() -> tuple[float, float, float]:
    """Number of races replayed, lowest and highest lead over assume-negative."""
    races = [one["race"] for one in read("selection")["sets"].values() if one["race"]]
    gains = [race["test"] - race["an"] for race in races]
    return len(gains), min(gains), max(gains)


def gains_with_many_classes() -> tuple[float, float]:
    """Least and most gain of wan and em over an on feature vectors of COCO; gr loses."""
    names = ("coco-features", "coco-features-frequency")
    maps = [read("selection")["sets"][name]["test_map"] for name in names]
    gains = [one[method]["1"] - one["an"]["1"] for one in maps for method in ("wan", "em .05")]
    assert all(one[gr]["1"] < one["an"]["1"] for one in maps for gr in ("gr voc", "gr coco"))
    return min(gains), max(gains)


def uncertain_races() -> tuple[float, int, float]:
    """Mean and highest loss if the safest method replaced uncertain winners, and their number."""
    losses = [
        one["race"]["test"] - one["test_map"]["ll_r"]["1"]
        for one in read("selection")["sets"].values()
        if one["race"] and one["race"]["lead"] < 2 * one["race"]["error"]
    ]
    return statistics.mean(losses), len(losses), max(losses)


def regret(choice: str, *, cross_fitted: bool = False) -> float:
    """Mean regret of a way to choose among models of feature vectors."""
    chosen = [one["choices"] for one in read("selection-features")["sets"].values()]
    kept = [one for one in chosen if one["cross-fitted"] is not None or not cross_fitted]
    return statistics.mean(one["best of nine"] - one[choice] for one in kept)


def correlation(name: str, criterion: str) -> float:
    """Rank correlation of a criterion with test mAP in a set of models."""
    return float(read("selection")["sets"][name]["criteria"][criterion]["correlation"])


def middle_half(name: str) -> tuple[float, float]:
    """Quartiles of the test mAP of a set's models."""
    maps = read("selection")["sets"][name]["test_map"].values()
    quartiles = statistics.quantiles([value for rates in maps for value in rates.values()])
    return quartiles[0], quartiles[2]


def average_gain(name: str) -> float:
    """Mean gain over methods by averaging the weights."""
    return statistics.mean(read("selection")["sets"][name]["average_gain"].values())


WAYS = ("given", "told")


def given_range() -> tuple[float, float, float]:
    """Width of the range of mAP with and without a given count, and how often the first holds."""
    figures = [one["estimates"]["map"] for one in read("coverage")]
    both = [one for one in figures if "given" in one]
    widths = [100 * statistics.mean(one[way][2] - one[way][1] for one in both) for way in WAYS]
    held = [one["given"][1] <= one["true"] <= one["given"][2] for one in both]
    return widths[0], widths[1], 100 * statistics.mean(held)


def split_sizes(data: str) -> tuple[int, int, int]:
    """Images of a benchmark's training, validation and test split."""
    counts = paper_counts(data)
    assert counts is not None
    return counts.train, counts.val, counts.test


def positives(data: str) -> float:
    """Published mean number of positives of a benchmark's training images."""
    counts = paper_counts(data)
    assert counts is not None
    return counts.positives


def behind_an() -> tuple[float, float]:
    """Least and most points by which GR and EM are below AN with random weights."""
    tables = {run["table"] for run in voc_runs() if run["table"].endswith("random weights")}
    behind = [
        voc_mean(table, "an") - voc_mean(table, method)
        for table in tables
        for method in ("gr", "em")
    ]
    return min(behind), max(behind)


def query_gain(method: str) -> float:
    """Points that a method gains with a query head at one rate."""
    row = f"{method} with a query head at one rate"
    return voc_mean("query heads", row) - voc_mean("Table A", method)


def eps_gradient() -> float:
    """Share of the exact gradient at z = -12 that a loss with eps = 1e-5 has."""
    p = 1 / (1 + math.exp(12))
    return p / (p + 1e-5)
