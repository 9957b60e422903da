"""Figures of a comparison page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from scipy.optimize import isotonic_regression

from spml.metrics.bootstrap import Comparison
from spml.report.figures import GRID, QUIET, class_axis, draw, epoch_axis, look
from spml.report.format import short
from spml.report.groups import Band, Group

LINE_HEIGHT = 16  # pixels between two labels
LETTER = 7  # approximate width of a letter in pixels


def curves(groups: Sequence[Group], key: str, title: str) -> Markup | None:
    """Draw the mean of each group by epoch, with a band from its lowest to its highest run."""
    bands = {number: group.band(key) for number, group in enumerate(groups)}
    bands = {number: band for number, band in bands.items() if band.epochs}
    if not bands:
        return None
    height = max(320, 110 + LINE_HEIGHT * len(bands))

    def paint(ax: Axes) -> None:
        for number, band in bands.items():
            _line(ax, band, number)
        epoch_axis(ax, title)
        low, high = ax.get_ylim()
        gap = (high - low) * LINE_HEIGHT / (height - 80)
        ends = [band.mean[-1] for band in bands.values()]
        leader = {"arrowstyle": "-", "color": QUIET, "linewidth": 0.5, "shrinkA": 2, "shrinkB": 4}
        last = max(band.epochs[-1] for band in bands.values())
        for (number, band), place in zip(bands.items(), spread(ends, gap), strict=True):
            value = band.mean[-1]
            moved = abs(place - value) > gap / 3 or band.epochs[-1] < last
            ax.annotate(
                short(groups[number].label, 22),
                (band.epochs[-1], value),
                xytext=(last * 1.07, place),
                va="center",
                color=look(number)["color"],
                annotation_clip=False,
                arrowprops=leader if moved else None,
            )

    label = f"{title} of each method by epoch"
    return draw(paint, name=f"compare-{key}", label=label, width=500, height=height)


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Return positions near the values, in the same order and at least `gap` apart."""
    order = np.argsort(values, kind="stable")
    steps = gap * np.arange(len(values))
    free = np.asarray(values, float)[order] - steps
    out = np.empty(len(values))
    out[order] = isotonic_regression(free).x + steps  # neighbours that would cross meet
    return [float(place) for place in out]


def _line(ax: Axes, band: Band, number: int) -> None:
    style = look(number)
    ax.fill_between(band.epochs, band.low, band.high, color=style["color"], alpha=0.15, linewidth=0)
    ax.plot(band.epochs, band.mean, markersize=4.5, **style)


def small_curve(group: Group, number: int, key: str) -> Markup | None:
    """Draw one group's mean and band, on its own scale."""
    band = group.band(key)
    if not band.epochs:
        return None

    def paint(ax: Axes) -> None:
        _line(ax, band, number)
        epoch_axis(ax, key)

    label = f"{key} of {group.label}"
    return draw(paint, name=f"{key}-{number}", label=label, width=330, height=220)


def dots(
    names: Sequence[str],
    values: Mapping[str, Mapping[str, float]],
    counts: Mapping[str, int],
    *,
    name: str,
) -> Markup:
    """Draw the AP of each class, a marker per method; `values` follow the groups' order."""
    labels = [short(label, 30) for label in values]
    width = 480 - LETTER * max(len(short(name)) for name in names)
    # columns of the legend
    columns = max(1, min(len(labels), 4, width // (34 + LETTER * max(map(len, labels)))))

    def paint(ax: Axes) -> None:
        rows = np.arange(len(names))
        table = np.array([[row.get(name, np.nan) for row in values.values()] for name in names])
        bar: Any = {"color": GRID, "linewidth": 3, "solid_capstyle": "round"}
        for row, cells in enumerate(table):
            if len(known := cells[~np.isnan(cells)]):
                ax.plot([known.min(), known.max()], [row, row], **bar)
        edge: Any = {"markersize": 6.5, "markeredgecolor": "white", "markeredgewidth": 0.6}
        for number, label in enumerate(labels):
            style = look(number) | {"linestyle": ""} | edge
            ax.plot(table[:, number], rows, label=label, zorder=3, **style)
        class_axis(ax, names, counts)
        ax.set_xlabel("average precision, %")
        above = (0, 1 + 0.6 / len(names))
        legend = ax.legend(loc="lower left", bbox_to_anchor=above, ncols=columns, handletextpad=0.2)
        legend.set_zorder(3)

    height = 72 + 22 * len(names) + 18 * -(-len(labels) // columns)
    label = "Average precision of each class and method"
    return draw(paint, name=name, label=label, width=500, height=height)


def differences(rows: Sequence[tuple[int, str, Comparison]], base: str) -> Markup:
    """Draw the difference of groups (number, label, comparison) to `base` with its interval."""

    def paint(ax: Axes) -> None:
        ax.axvline(0, color=QUIET, linewidth=1, linestyle=":")
        for place, (number, _, comparison) in enumerate(rows):
            style = look(number)
            low, high = comparison.low, comparison.high
            ax.hlines(place, low, high, color=style["color"], linewidth=2.4)
            ax.plot([comparison.difference], [place], markersize=7, **style)
        class_axis(ax, [label for _, label, _ in rows], {})
        ax.set_xlabel(f"test mAP minus that of {short(base, 30)}, points")

    label = f"Difference of each method's test mAP from that of {base}, with 95 % intervals"
    return draw(paint, name="differences", label=label, width=500, height=70 + 26 * len(rows))
