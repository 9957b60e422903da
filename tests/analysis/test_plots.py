"""Line names do not overlap, stay within the axes and near their lines; nothing is cut off."""

from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

from spml.analysis import plots
from spml.analysis.confidences import Assumptions, Distinguishability, ratios
from spml.analysis.plots import FONT, name_ends


@pytest.fixture
def axes():
    ax = Figure(figsize=(4, 3)).subplots()
    ax.set_ylim(0, 10)
    return ax


def test_names_do_not_overlap_nor_leave_the_axes(axes):
    ends = {"a": 9.9, "b": 9.8, "c": 9.7, "AN": 2.0, "far": 50.0}
    name_ends(axes, [(height, name, "k") for name, height in ends.items()], 1.0)
    places = {text.get_text(): text.xy[1] for text in axes.texts}
    ordered = sorted(places.values())
    points = axes.bbox.height * 72 / axes.figure.dpi / 10  # in steps of one unit
    assert all((upper - lower) * points >= FONT for lower, upper in pairwise(ordered))
    assert max(ordered) <= 10 and places["AN"] == 2.0
    assert places["far"] > places["a"] > places["b"] > places["c"]


def test_no_names_are_drawn_without_lines(axes):
    name_ends(axes, [], 1.0)
    assert not axes.texts


@pytest.fixture
def drawn(monkeypatch):
    """Figures that are drawn, instead of their files."""
    figures = []

    @contextmanager
    def keep(*files, size, font):
        figures.append(Figure(figsize=size))
        yield figures[-1]

    monkeypatch.setattr(plots, "figure_files", keep)
    return figures


def test_the_highest_bar_of_either_group_is_within_the_axes(drawn):
    spread, peaked = [5] * 20, [90] + [10] + [0] * 18
    for counts in ((spread, peaked), (peaked, spread)):
        one = Distinguishability("an", "an-0", 100, 100, [0, 1], [0.0, 0.1], 1, *counts)
        plots.draw_distinguishability([one])
        assert drawn[-1].axes[1].get_ylim()[1] > 90


@pytest.mark.parametrize(("starts", "panels"), [((0.5, 0.5), 3), ((0.5, 0.6), 4)])
def test_every_axes_of_the_assumptions_figure_is_used(drawn, starts, panels):
    positive = np.arange(40) % 4 == 0
    at = {p: ratios(np.full(40, p), positive, 0.5, 0) for p in (*starts, 0.9)}
    results = [
        Assumptions(name, name, 0.5, at[p], at[0.9])
        for name, p in zip(("gr", "an"), starts, strict=True)
    ]
    plots.draw_assumptions(results)
    assert [bool(ax.lines) for ax in drawn[0].axes] == [True] * panels
