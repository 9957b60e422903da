"""Names beside lines: apart from each other, within the axes, and near their lines where there is room."""

from itertools import pairwise

import pytest

from spml.analysis.plots import FONT, name_ends


@pytest.fixture
def axes():
    from matplotlib.figure import Figure

    ax = Figure(figsize=(4, 3)).subplots()
    ax.set_ylim(0, 10)
    return ax


def test_names_do_not_overlap_nor_leave_the_axes(axes):
    name_ends(axes, [(9.9, "a", "k"), (9.8, "b", "k"), (9.7, "c", "k"), (2.0, "AN", "k"), (50.0, "far", "k")], 1.0)
    places = {text.get_text(): text.xy[1] for text in axes.texts}
    ordered = sorted(places.values())
    points = axes.bbox.height * 72 / axes.figure.dpi / 10  # of one unit
    assert all((upper - lower) * points >= FONT for lower, upper in pairwise(ordered))
    assert max(ordered) <= 10 and places["AN"] == 2.0
    assert places["far"] > places["a"] > places["b"] > places["c"]


def test_no_ends_no_names(axes):
    name_ends(axes, [], 1.0)
    assert not axes.texts
