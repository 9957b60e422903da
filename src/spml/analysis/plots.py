"""Drawings of the studies of losses, hyper-parameters and confidences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from spml.analysis.confidences import FEWEST, Assumptions, Distinguishability, Ratios, posterior
from spml.analysis.gradients import Curve
from spml.analysis.sensitivity import MOVES, PointResult, Sensitivity
from spml.report.compare_figures import spread
from spml.report.figures import COLOURS, INK, QUIET, figure_files, look, whole_epochs
from spml.report.format import count

COLUMN, PAGE = 3.5, 7.2  # inches: a column and the width of a page of two
FONT = 8.5
End = tuple[float, str, str]  # of a line: its height, its name, its colour
LEVELS = {"AN": ("--", INK), "EM": (":", QUIET)}


def draw_losses(curves: Sequence[Curve], *files: Path) -> None:
    """Draw L3 by confidence, a labelled line for each q3."""
    with figure_files(*files, size=(COLUMN, 3.0), font=FONT) as figure:
        ax = figure.subplots()
        top = 4.0
        ends = []
        for number, curve in enumerate(curves):
            last = curve.label == curves[-1].label
            style: Any = {"color": INK, "linestyle": ":"} if last else _line(number)
            ax.plot(curve.p, curve.values, linewidth=1.6, **style)
            ends.append((min(curve.values[-1], top), curve.label, style["color"]))
        ax.set_ylim(0, top)
        ax.set_xlim(0, 1)
        name_ends(ax, ends, 1.02)
        _axes(ax, "confidence p of an unknown label", "L3")


def draw_gradients(curves: Sequence[Curve], *files: Path) -> None:
    """Draw the gradient of the logit by confidence, a line for each loss.

    Training raises the confidence if the gradient is below 0.
    """
    with figure_files(*files, size=(COLUMN, 3.0), font=FONT) as figure:
        ax = figure.subplots()
        ax.axhline(0, color=QUIET, linewidth=0.8)
        for number, curve in enumerate(curves):
            ax.plot(curve.p, curve.values, linewidth=1.6, label=curve.label, **_line(number))
        ax.set_xlim(0, 1)
        _axes(ax, "confidence p of an unknown label", "gradient with respect to the logit")
        place: Any = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1)}
        ax.legend(ncols=2, handlelength=2.6, columnspacing=1.2, **place)


def draw_sensitivity(
    studies: Sequence[Sensitivity], *files: Path, chosen_by: str = "validation mAP"
) -> None:
    """Draw mAP by hyper-parameter with AN and EM as lines; `chosen_by` names validation's."""
    with figure_files(*files, size=(PAGE, 5.6), font=FONT) as figure:
        for ax, study in zip(figure.subplots(2, 2).flat, studies, strict=False):
            (_moving if study.name == MOVES else _grid)(ax, study, chosen_by)


def _grid(ax: Axes, study: Sensitivity, chosen_by: str) -> None:
    tested = any(point.test_map is not None for point in study.done)
    drawn = [
        (point, value) for point in study.done if (value := figure_of(point, tested)) is not None
    ]
    ends: list[End] = []
    for number, line in enumerate(dict.fromkeys(point.line for point in study.points)):
        reached = sorted((point.x, value) for point, value in drawn if point.line == line)
        if reached:
            ends.append((reached[-1][1], line, _marked(ax, reached, number)))
    ends += _levels(ax, study.levels, tested)
    if ends:
        values = [*(end[0] for end in ends), *(value for _, value in drawn)]
        low, high = min(values), max(values)
        margin = max(0.08 * (high - low), 0.2)
        ax.set_ylim(low - margin, high + margin)
    places = sorted({point.x for point in study.points})
    gap = 0.06 * (places[-1] - places[0])
    ax.set_xlim(places[0] - gap, places[-1] + gap)
    ax.set_xticks(places, [f"{place:g}" for place in places])
    name_ends(ax, ends, 1.02)
    _axes(ax, study.axis, f"{'test mAP' if tested else chosen_by}, %")
    ax.set_title(_counted(study), loc="left", color=QUIET)


def _moving(ax: Axes, study: Sensitivity, chosen_by: str) -> None:
    """Draw the validation figure by epoch, for several schedules of q3."""
    ends: list[End] = []
    for number, point in enumerate(study.points):
        by_epoch = list(enumerate(point.by_epoch))[1:]
        curve = [(epoch, value) for epoch, value in by_epoch if value is not None]
        if curve:
            name = point.line.replace("q3 from ", "q3 ").replace(" to ", "→")
            ends.append((curve[-1][1], name, _marked(ax, curve, number)))
    last = max((len(point.by_epoch) - 1 for point in study.points), default=1)
    ax.set_xlim(0.7, max(last, 1) + 0.3)
    whole_epochs(ax)
    name_ends(ax, ends, 1.02)
    _axes(ax, "epoch", f"{chosen_by}, %")
    ax.set_title(_counted(study), loc="left", color=QUIET)


def _marked(ax: Axes, points: Sequence[tuple[float, float]], number: int) -> str:
    """Draw a line with markers, and return its colour."""
    style = look(number)
    ax.plot(*zip(*points, strict=True), markersize=4, linewidth=1.4, **style)
    return str(style["color"])


def _levels(ax: Axes, levels: Sequence[PointResult], tested: bool) -> list[End]:
    """Draw AN and EM as horizontal lines, and return their ends for labels."""
    ends = []
    for level in levels:
        value = figure_of(level, tested)
        if value is not None:
            line, colour = LEVELS[level.line]
            ax.axhline(value, color=colour, linestyle=line, linewidth=1.2, zorder=1)
            ends.append((value, level.line, colour))
    return ends


def figure_of(point: PointResult, tested: bool) -> float | None:
    """Return the figure to draw: test mAP if the data have a test split, else validation."""
    return point.test_map if tested else point.val_map


def _counted(study: Sensitivity) -> str:
    number, every = len(study.done), len(study.points)
    return study.name if number == every else f"{study.name}: {number} of {every} runs"


def _line(number: int) -> dict[str, Any]:
    return {**look(number), "marker": ""}


def _axes(ax: Axes, below: str, beside: str = "") -> None:
    ax.set_xlabel(below)
    ax.set_ylabel(beside)
    ax.grid(axis="y")
    ax.tick_params(length=0)


def name_ends(ax: Axes, ends: Sequence[End], x: float) -> None:
    """Write names right of the axes, near the ends of their lines, without overlap."""
    if not ends:
        return
    low, high = ax.get_ylim()
    height = ax.bbox.height * 72 / ax.figure.dpi  # points, about: the layout comes later
    gap = (high - low) * 1.25 * FONT / max(height, 1)
    places = spread([min(max(value, low), high) for value, _, _ in ends], gap)
    put: Any = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
    top = high - gap / 3  # so that no letter is above the axes
    for i in sorted(range(len(ends)), key=lambda i: -places[i]):
        place = min(places[i], top)
        top = place - gap
        ax.annotate(ends[i][1], (x, place), color=ends[i][2], **put)


def draw_distinguishability(studies: Sequence[Distinguishability], *files: Path) -> None:
    """Draw the distance by epoch of every run, and the histograms of each at its best epoch."""
    with figure_files(*files, size=(PAGE, 2.7), font=FONT) as figure:
        axes = figure.subplots(1, 1 + len(studies), width_ratios=[1.15] + [1.0] * len(studies))
        _distances(axes[0], studies)
        every = [part for one in studies for part in (one.positive_counts, one.negative_counts)]
        top = max(_shares(counts).max() for counts in every)
        for ax, one in zip(axes[1:], studies, strict=True):
            _histogram(ax, one, top)
        axes[1].set_ylabel("% of the group, per bin")


def _distances(ax: Axes, studies: Sequence[Distinguishability]) -> None:
    ends = []
    for number, one in enumerate(studies):
        style = look(number)
        ax.plot(one.epochs, one.distances, markersize=4, **style)
        circle: Any = {"color": style["color"], "markersize": 9, "fillstyle": "none"}
        ax.plot([one.best_epoch], [one.best_distance], "o", **circle)
        ends.append((one.distances[-1], one.method.upper(), style["color"]))
    ax.set_ylim(0)
    ax.set_xlim(-0.3, max(one.epochs[-1] for one in studies) + 0.4)
    name_ends(ax, ends, 1.01)
    whole_epochs(ax)
    _axes(ax, "epoch (circled: the best)", "Wasserstein-1 distance")


def _histogram(ax: Axes, one: Distinguishability, top: float) -> None:
    edges = np.linspace(0, 1, len(one.positive_counts) + 1)
    positive: Any = {"facecolor": "#cfe3f1", "edgecolor": COLOURS[0], "hatch": "////"}
    negative: Any = {"edgecolor": COLOURS[1], "linewidth": 1.4}
    name = f"positive, {count(one.positives)}"
    ax.stairs(_shares(one.positive_counts), edges, fill=True, label=name, linewidth=1, **positive)
    name = f"negative, {count(one.negatives)}"
    ax.stairs(_shares(one.negative_counts), edges, label=name, **negative)
    ax.set_yscale("log")
    ax.set_ylim(0.003, top * 1.6)
    ax.set_xlim(0, 1)
    ax.yaxis.set_major_locator(LogLocator(base=10, numticks=8))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.tick_params(length=0)
    ax.set_xlabel(f"confidence, {one.method.upper()}, epoch {one.best_epoch}")
    place: Any = {"loc": "lower left", "bbox_to_anchor": (-0.02, 0.98)}
    ax.legend(handlelength=1.4, borderpad=0.2, labelspacing=0.2, **place)


def _shares(counts: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the percentage of a group in each bin."""
    return 100 * np.asarray(counts) / max(sum(counts), 1)


def draw_assumptions(studies: Sequence[Assumptions], *files: Path) -> None:
    """Draw FN / (FN + TN) by confidence, before and after training.

    Runs with equal ratios before training share one panel.
    """
    panels = [(f"{one.method.upper()}, before training", one.before, one.a) for one in studies]
    if all(one.before == studies[0].before for one in studies):
        methods = " and ".join(one.method.upper() for one in studies)
        panels = [(f"before training, {methods}", *panels[0][1:])]
    for one in studies:
        title = f"{one.method.upper()}, after epoch {one.after.epoch}"
        panels.append((title, one.after, one.a))
    rows = 1 if len(panels) <= 3 else 2
    columns = -(-len(panels) // rows)
    with figure_files(*files, size=(PAGE, 2.6 * rows), font=FONT) as figure:
        axes = np.atleast_1d(figure.subplots(rows, columns, sharey=True)).flat
        for ax, (title, ratios, a) in zip(axes, panels, strict=False):
            _ratios(ax, ratios, a)
            ax.set_title(title, loc="left", color=QUIET)
        figure.axes[0].set_ylabel("FN / (FN + TN)")


def _ratios(ax: Axes, ratios: Ratios, a: float) -> None:
    """Draw bins as dots, hollow if they have few labels; the overall share and k_hat as lines."""
    labels = np.asarray(ratios.labels)
    ratio, confidence = np.asarray(ratios.positives) / labels, np.asarray(ratios.confidence)
    few = labels < FEWEST
    grid = np.linspace(0, 1, 101)
    posteriors: Any = {"color": COLOURS[1], "linewidth": 1.5, "label": "k̂ of Eq. (kx)"}
    ax.plot(grid, posterior(grid, a), zorder=1, **posteriors)
    whole: Any = {"color": INK, "linestyle": "--", "label": "all bins together"}
    ax.axhline(ratios.share, linewidth=1.0, zorder=1, **whole)
    dots: Any = {"linestyle": "", "marker": "o", "markersize": 3.2, "markeredgewidth": 0.8}
    dots["color"] = COLOURS[0]
    ax.plot(confidence[~few], ratio[~few], label="a bin", **dots)
    rare = f"fewer than {FEWEST} labels"
    ax.plot(confidence[few], ratio[few], fillstyle="none", label=rare, **dots)
    ax.set_xlim(0, 1)
    ax.set_ylim(-0.03, 1.03)
    _axes(ax, "confidence")
    if ratios.epoch == 0:
        ax.legend(loc="upper left", handlelength=1.6, borderpad=0.2, labelspacing=0.25)
