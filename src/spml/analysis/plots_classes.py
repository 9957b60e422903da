"""Drawings of data: positives per class, and pairs of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from spml.data.statistics import Statistics
from spml.report.figures import COLOURS, INK, QUIET, figure_files
from spml.report.format import short

BARS = 100  # classes that get a bar and a name each
NAMES = 80  # at most, along an axis of the map of pairs
SEEN, MISSING = COLOURS[0], COLOURS[1]


def draw_classes(statistics: Statistics, *out: Path) -> None:
    """Draw the observed and missing positives of each class, the most frequent first.

    A dashed line marks the number of training images.
    """
    order = np.argsort(-statistics.total, kind="stable")
    few = len(order) <= BARS
    size = (7.5, 1.4 + 0.22 * len(order)) if few else (8.5, 4.6)
    with figure_files(*out, size=size) as figure:
        ax = figure.subplots()
        (_bars if few else _curves)(ax, statistics, order)
        number = statistics.images["train"]
        line = (ax.axvline if few else ax.axhline)(number, color=INK, linestyle="--", linewidth=1.2)
        ax.grid(axis="x" if few else "y")
        handles, labels = ax.get_legend_handles_labels()
        labels.append(f"training images: {number:,}")
        place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
        ax.legend([*handles, line], labels, ncols=4, **place)


def _bars(ax: Axes, statistics: Statistics, order: np.ndarray[Any, Any]) -> None:
    place = np.arange(len(order))
    seen = statistics.seen[order]
    ax.barh(place, seen, height=0.7, color=SEEN, label=_name(statistics))
    if statistics.missing is not None:
        missing = statistics.missing[order]
        look: Any = {"facecolor": "#f7d9c4", "edgecolor": MISSING, "hatch": "////"}
        look |= {"linewidth": 0.7, "label": "positives missing"}
        ax.barh(place, missing, left=seen, height=0.7, **look)
    box: Any = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85}
    for row, i in enumerate(order):
        text = f"{statistics.seen[i]:,}"
        if statistics.missing is not None:
            text += f" + {statistics.missing[i]:,}"
        inside = statistics.total[i] > 0.8 * statistics.images["train"]
        shift, side = ((-5, 0), "right") if inside else ((5, 0), "left")
        put: Any = {"textcoords": "offset points", "va": "center", "fontsize": 8, "bbox": box}
        ax.annotate(text, (statistics.total[i], row), shift, ha=side, **put)
    ax.set_yticks(place, [short(statistics.classes[i]) for i in order], color=INK)
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_xlim(0, max(statistics.images["train"], 1) * 1.02)
    ax.tick_params(length=0)
    ax.set_xlabel("training images with the label")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _curves(ax: Axes, statistics: Statistics, order: np.ndarray[Any, Any]) -> None:
    """Draw lines instead of bars, on a logarithmic axis that includes 0."""
    rank = np.arange(1, len(order) + 1)
    dots: Any = {"marker": ".", "markersize": 3, "linestyle": "", "clip_on": False}
    if statistics.missing is not None:
        ax.plot(rank, statistics.seen[order], color=SEEN, label="positives seen", **dots)
        ax.plot(rank, statistics.missing[order], color=MISSING, label="positives missing", **dots)
    label = "both" if statistics.complete else _name(statistics)
    ax.plot(rank, statistics.total[order], color=INK, linewidth=0.8, label=label)
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(0, statistics.images["train"] * 1.6)
    ax.set_xlim(0, len(order) + 1)
    ax.set_xlabel(f"{len(order):,} classes, most frequent first")
    ax.set_ylabel("training images with the label")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def draw_pairs(statistics: Statistics, *out: Path) -> None:
    """Draw a map of the share of one class's images that also have another class."""
    assert statistics.cooccurrence is not None
    own = statistics.cooccurrence.diagonal()
    share = statistics.cooccurrence / np.maximum(own, 1)[:, None]
    np.fill_diagonal(share, np.nan)
    number = len(statistics.classes)
    side = min(12.0, 4.0 + 0.11 * number)
    with figure_files(*out, size=(side + 1, side)) as figure:
        ax = figure.subplots()
        norm = PowerNorm(0.5, 0, max(0.01, float(np.nanmax(share, initial=0.0))))
        image = ax.imshow(share, cmap="Blues", norm=norm, interpolation="nearest", aspect="equal")
        ax.set_facecolor(QUIET)
        step = max(1, -(-number // NAMES))
        shown = np.arange(0, number, step)
        names = [short(statistics.classes[int(i)]) for i in shown]
        small = 8 if number <= 40 else 6
        ax.set_xticks(shown, names, rotation=90, fontsize=small, color=INK)
        ax.set_yticks(shown, names, fontsize=small, color=INK)
        ax.tick_params(length=0 if step == 1 else 2)
        ax.set_xlabel("have this class too" + (f" (one in {step} is named)" if step > 1 else ""))
        ax.set_ylabel("of the training images of this class")
        ax.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=ax, shrink=0.7, format=lambda value, _: f"{value:.0%}")
        bar.outline.set_visible(False)


def _name(statistics: Statistics) -> str:
    return "positives seen" if statistics.complete else "known positives"
