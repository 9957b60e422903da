"""Line names do not overlap, stay within the axes and near their lines; nothing is cut off."""

from itertools import pairwise

import numpy as np
import pytest

from spml.analysis import plots_confidence
from spml.analysis.assumptions import Assumptions, ratios
from spml.analysis.distinguishability import Distinguishability
from spml.analysis.plots import FONT, name_ends


@pytest.fixture
def axes():
    from matplotlib.figure import Figure

    ax = Figure(figsize=(4, 3)).subplots()
    ax.set_ylim(0, 10)
    return ax


def test_names_do_not_overlap_nor_leave_the_axes(axes):
    name_ends(
        axes,
        [(9.9, "a", "k"), (9.8, "b", "k"), (9.7, "c", "k"), (2.0, "AN", "k"), (50.0, "far", "k")],
        1.0,
    )
    places = {text.get_text(): text.xy[1] for text in axes.texts}
    ordered = sorted(places.values())
    points = axes.bbox.height * 72 / axes.figure.dpi / 10  # in steps of one unit
    assert all((upper - lower) * points >= FONT for lower, upper in pairwise(ordered))
    assert max(ordered) <= 10 and places["AN"] == 2.0
    assert places["far"] > places["a"] > places["b"] > places["c"]


def test_no_names_are_drawn_without_lines(axes):
    name_ends(axes, [], 1.0)
    assert not axes.texts


def test_the_highest_bar_of_either_group_is_within_the_axes(tmp_path, monkeypatch):
    tops = []
    histogram = plots_confidence._histogram
    monkeypatch.setattr(
        plots_confidence,
        "_histogram",
        lambda ax, one, top: (histogram(ax, one, top), tops.append(ax)),
    )
    spread, peaked = [5] * 20, [90] + [10] + [0] * 18
    for counts in ((spread, peaked), (peaked, spread)):
        one = Distinguishability("an", "an-0", 100, 100, [0, 1], [0.0, 0.1], 1, *counts)
        plots_confidence.draw_distinguishability([one], tmp_path / "d.svg")
        assert tops[-1].get_ylim()[1] > 90


@pytest.mark.parametrize(("starts", "panels"), [((0.5, 0.5), 3), ((0.5, 0.6), 4)])
def test_every_axes_of_the_assumptions_figure_is_used(tmp_path, monkeypatch, starts, panels):
    seen = []
    drawn = plots_confidence._ratios
    monkeypatch.setattr(
        plots_confidence, "_ratios", lambda ax, *rest: (drawn(ax, *rest), seen.append(ax))
    )
    positive = np.arange(40) % 4 == 0
    at = {p: ratios(np.full(40, p), positive, 0.5, 0) for p in (*starts, 0.9)}
    results = [
        Assumptions(name, name, 0.5, at[p], at[0.9])
        for name, p in zip(("gr", "an"), starts, strict=True)
    ]
    plots_confidence.draw_assumptions(results, tmp_path / "e.svg")
    assert len(seen) == panels and seen[0].figure.axes == seen
