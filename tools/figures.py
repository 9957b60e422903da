"""Figures quoted in sentences of README.md and docs/, each with where it comes from.

`tools/figures_check.py` compares them. To quote a measured figure, write the sentence and add an
entry here: the page, the words with a format in place of each figure, the record, and a function
that returns the figures. To change such a sentence, change its entry too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import figure_values as values
from figure_values import digits_leads, digits_mean, generated, number, read, review_precision

from spml.bench.published import TABLE_2
from spml.runs.settings import Settings


class Figure(NamedTuple):
    """A sentence that quotes figures.

    Attributes:
        page: path from the root of the repository.
        text: words of the page, with a format such as {:.1f} in place of each figure.
        record: where the figures come from.
        values: returns the figures in their order.
    """

    page: str
    text: str
    record: str
    values: Callable[[], Iterable[float | str]]


def _paper() -> list[float]:
    """Published test mAP of AN and GR on VOC."""
    cells = [TABLE_2[method][0] for method in ("an", "gr")]
    return [cell[0] for cell in cells if cell is not None]


def _versions() -> tuple[float | str, ...]:
    """Number of recorded runs on VOC2012, and the Python and torch of all of them."""
    runs = values.voc_runs()
    versions = {
        tuple(".".join(run["versions"][name].split(".")[:2]) for name in ("python", "torch"))
        for run in runs
    }
    ((python, torch),) = versions
    return len(runs), python, torch


def _scaling(row: str, column: int) -> float:
    return number(generated("docs/scaling.md", "scaling", row)[column])


GRID = "benchmarks/results/digits-grid.json"
KERNELS = "benchmarks/results/kernel-choice-h200.json"
PAPER = "src/spml/data/benchmarks.py"
REVIEW = "benchmarks/results/review-voc.json"
RUNS = "benchmarks/results/voc2012-lite0"
SCALING = "table of docs/scaling.md"
SELECTION = "benchmarks/results/selection.json"

FIGURES = (
    Figure(
        "README.md",
        "the paper has {:.1f} for `an` and {:.1f} for `gr`",
        "src/spml/bench/published.py",
        _paper,
    ),
    Figure(
        "README.md",
        "{} runs on one NVIDIA H200 with Python {} and torch {}",
        RUNS,
        _versions,
    ),
    Figure(
        "docs/calibration.md",
        "COCO ({:,} validation items",
        PAPER,
        lambda: [values.split_sizes("coco")[1]],
    ),
    Figure(
        "docs/calibration.md",
        "a range of {:.0f} points instead of\n{:.0f}, which holds the truth in {:.0f} % of cases",
        "benchmarks/results/coverage.json",
        values.given_range,
    ),
    Figure(
        "docs/choosing.md",
        "Replayed on {} data sets, the winner of the race was never below `an`: "
        "it led by {:.1f} to {:.1f} points",
        SELECTION,
        values.race_gains,
    ),
    Figure(
        "docs/choosing.md",
        "`em` with `alpha=0.05`, {:.1f} to {:.1f} points above `an` on COCO and `gr` below it",
        SELECTION,
        values.gains_with_many_classes,
    ),
    Figure(
        "docs/choosing.md",
        "on VOC2012 they differ by at most {:.1f}",
        RUNS,
        lambda: [values.gr_against_em()],
    ),
    Figure(
        "docs/choosing.md",
        "`gr` and `em` lead `an` by {:.1f} and {:.1f}",
        GRID,
        lambda: [
            digits_mean("one label each", method) - digits_mean("one label each", "an")
            for method in ("gr", "em")
        ],
    ),
    Figure(
        "docs/choosing.md",
        "`gr` and `em` are {:.1f} to {:.1f} points below it",
        RUNS,
        values.behind_an,
    ),
    Figure(
        "docs/choosing.md",
        "`an` gains {:.1f} and `gr` {:.1f} points",
        RUNS,
        lambda: [values.query_gain(method) for method in ("an", "gr")],
    ),
    Figure(
        "docs/data.md",
        "it must report {:,} / {:,} / {:,} images",
        PAPER,
        lambda: values.split_sizes("voc"),
    ),
    Figure(
        "docs/data.md",
        "images, {:.2f} positives per training image",
        PAPER,
        lambda: [values.positives("voc")],
    ),
    Figure(
        "docs/data.md",
        "{:,} of {:,} unlabelled entries ({:.1f} %) are positive",
        REVIEW,
        values.missing_of_unknown,
    ),
    Figure(
        "docs/digits.md",
        "(mean {:.2f} per scene; frequent and rare classes",
        GRID,
        lambda: [digits_mean("digits", "an", "positives")],
    ),
    Figure(
        "docs/digits.md",
        "two to five labels (mean {:.1f})",
        GRID,
        lambda: [digits_mean("digits-many", "an", "positives")],
    ),
    Figure(
        "docs/digits.md",
        "the better validation mAP ({:.1f} against {:.1f})",
        GRID,
        lambda: [digits_mean(one, "full", "val_map") for one in ("digits", "digits, lr 0.01")],
    ),
    Figure(
        "docs/digits.md",
        "which leads `an` by {:.1f} instead of {:.1f}",
        GRID,
        lambda: [
            digits_mean(one, "gr") - digits_mean(one, "an") for one in ("digits", "digits, lr 0.01")
        ],
    ),
    Figure(
        "docs/digits.md",
        "in every row, by {:.1f} to {:.0f} points",
        GRID,
        lambda: [min(digits_leads("gr", "an")), max(digits_leads("gr", "an"))],
    ),
    Figure(
        "docs/digits.md",
        "GR beats EM in {} of {} rows, by at most {:.1f}",
        GRID,
        values.digits_em,
    ),
    Figure(
        "docs/digits.md",
        "EM is ahead in the others, by up to {:.1f}",
        GRID,
        lambda: [max(digits_leads("em", "gr"))],
    ),
    Figure(
        "docs/faq.md",
        "was best for {} of {} methods on VOC2012",
        RUNS,
        lambda: values.best_at(5e-5),
    ),
    Figure(
        "docs/framework.md",
        "(at z = −12 and eps = 1e-5 it is {:.2f} of the exact one)",
        "p / (p + eps)",
        lambda: [values.eps_gradient()],
    ),
    Figure(
        "docs/methods.md",
        "have a head of about {:.0f} million parameters",
        "benchmarks/results/method-cost.json",
        lambda: [values.query_head()],
    ),
    Figure(
        "docs/performance.md",
        "numbers ({:,} training, {:,} validation, {:,} test)",
        PAPER,
        lambda: values.split_sizes("voc"),
    ),
    Figure(
        "docs/performance.md",
        "was {:.0f} % shorter than with graphs alone",
        KERNELS,
        lambda: [values.own_kernels()],
    ),
    Figure(
        "docs/performance.md",
        "Compiling took {:.0f} s more to prepare and saved {:.1f} s of {:,} trained images, "
        "so it pays from about {:,}",
        KERNELS,
        values.compiling,
    ),
    Figure(
        "docs/performance.md",
        "`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={}`, seven processes",
        "benchmarks/results/side-by-side-h200.json",
        lambda: [read("side-by-side-h200")["unsound"]["share_percent"]],
    ),
    Figure(
        "docs/reproduction.md",
        "under the same protocol: {:,} training, {:,} validation and {:,} test images",
        PAPER,
        lambda: values.split_sizes("voc"),
    ),
    Figure(
        "docs/review.md",
        "{:.1f} % of the first 500 suggestions are missing labels; {:.1f} % of all unknown labels",
        REVIEW,
        lambda: [review_precision("voc", "gr", "list", 500), values.missing_of_unknown()[2]],
    ),
    Figure(
        "docs/review.md",
        "500 answers add {:.2f} ± {:.2f} points of test mAP there; "
        "500 random answers add {:.2f} ± {:.2f}",
        REVIEW,
        lambda: [*values.review_gain("gr's list"), *values.review_gain("at random")],
    ),
    Figure(
        "docs/review.md",
        "both reach {:.1f} % of the first 100 there, the list of `spml review` {:.1f} %",
        "benchmarks/results/review-features.json",
        lambda: [review_precision("features", "an", one, 100) for one in ("percentile", "list")],
    ),
    Figure(
        "docs/review.md",
        "the {:,} validation images of VOC2012",
        PAPER,
        lambda: [values.split_sizes("voc")[1]],
    ),
    Figure(
        "docs/scaling.md",
        "send {:.0f} MB of scores per step, next to {:.0f} MB of gradients",
        SCALING,
        lambda: [_scaling("gr", 5), values.gradients()],
    ),
    Figure(
        "docs/scaling.md",
        "`lagc` would send {:.0f} GB per step and `mime` {:.1f} GB",
        SCALING,
        lambda: [_scaling(method, 5) for method in ("lagc", "mime")],
    ),
    Figure(
        "docs/selection.md",
        "its correlation is {:.2f}, and {:.2f} with the true numbers",
        SELECTION,
        lambda: [
            values.correlation("digits-many", one)
            for one in ("estimated positives", "true positives")
        ],
    ),
    Figure(
        "docs/selection.md",
        "half of the models lie between {:.1f} and {:.1f}",
        SELECTION,
        lambda: values.middle_half("digits-many"),
    ),
    Figure(
        "docs/selection.md",
        "it changed test mAP by {:+.1f} and {:+.1f} points",
        SELECTION,
        lambda: [values.average_gain(one) for one in ("coco-3000", "voc-20%")],
    ),
    Figure(
        "docs/selection.md",
        "would have lost\n{:.1f} points in the mean of {} such races of the study below, "
        "and {:.1f} at most",
        SELECTION,
        values.uncertain_races,
    ),
    Figure(
        "docs/selection.md",
        "change the mean regret\n  from {:.2f} to {:.2f}",
        "benchmarks/results/selection-features.json",
        lambda: [values.regret(one) for one in ("the race", "all nine to the end")],
    ),
    Figure(
        "docs/selection.md",
        "it reduces the mean regret from {:.2f} to {:.2f}",
        "benchmarks/results/selection-features.json",
        lambda: [values.regret(one, cross_fitted=True) for one in ("the race", "cross-fitted")],
    ),
    Figure(
        "docs/sklearn.md",
        "a race takes up to {:.1f} times as long",
        "src/spml/runs/settings.py",
        lambda: [1 + Settings().race_budget],
    ),
    Figure(
        "docs/training.md",
        "which took {:.0f} seconds to start",
        KERNELS,
        lambda: [values.way("bf16, compiled, graphs")["preparation"]],
    ),
    Figure(
        "docs/training.md",
        "choosing by observed labels cost `gr` {:.2f} points",
        GRID,
        lambda: [values.lost_by_observed()],
    ),
    Figure(
        "docs/training.md",
        "about {:.0f} million parameters on `resnet50`",
        "benchmarks/results/method-cost.json",
        lambda: [values.query_head()],
    ),
)
