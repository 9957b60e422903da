"""Drawings of the studies of confidences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from spml.analysis.assumptions import FEWEST, Assumptions, Ratios, posterior
from spml.analysis.distinguishability import Distinguishability
from spml.analysis.plots import FONT, PAGE, name_ends
from spml.report.figures import COLOURS, INK, QUIET, look, whole_epochs
from spml.report.format import count
from spml.report.printed import printed

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_distinguishability(studies: Sequence[Distinguishability], *files: Path) -> None:
    """Draw the distance by epoch of every run, and the histograms of each at its best epoch."""
    with printed(*files, size=(PAGE, 2.7), font=FONT) as figure:
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
    ax.grid(axis="y")
    ax.tick_params(length=0)
    ax.set_xlabel("epoch (circled: the best)")
    ax.set_ylabel("Wasserstein-1 distance")


def _histogram(ax: Axes, one: Distinguishability, top: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

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
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
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
    with printed(*files, size=(PAGE, 2.6 * rows), font=FONT) as figure:
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
    ax.grid(axis="y")
    ax.tick_params(length=0)
    ax.set_xlabel("confidence")
    if ratios.epoch == 0:
        ax.legend(loc="upper left", handlelength=1.6, borderpad=0.2, labelspacing=0.25)
