"""Figures quoted in sentences of the documentation are those of the records."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def check(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("figures_check")


def test_every_quoted_figure_is_that_of_its_record(check):
    assert list(check.problems(check.FIGURES, check.read_pages(ROOT))) == []
    assert len(check.FIGURES) >= 35


def test_every_figure_that_changes_on_a_page_is_reported_with_its_place(check):
    """Each quoted number is raised by one in its last digit, on its page, one after the other."""
    pages = check.read_pages(ROOT)
    for figure in check.FIGURES:
        text = pages[figure.page]
        place = check.places(figure, text)[0]
        for group in range(1, len(place.groups()) + 1):
            start, end = place.span(group)
            old = place[group]
            new = old[:-1] + str((int(old[-1]) + 1) % 10)
            changed = {**pages, figure.page: text[:start] + new + text[end:]}
            line = text.count("\n", 0, place.start()) + 1
            plain, before = (one.replace("−", "-") for one in (new, old))
            expected = f"{figure.page}:{line}: quoted {plain}, recorded {before} ({figure.record})"
            assert list(check.problems([figure], changed)) == [expected]


def test_a_sentence_that_was_rewritten_is_reported(check):
    figure = next(one for one in check.FIGURES if one.page == "docs/review.md")
    pages = {"docs/review.md": "Nothing is quoted here."}
    (line,) = check.problems([figure], pages)
    assert line.startswith("docs/review.md: no sentence '96.1 % of the first 500 suggestions")
    assert "tools/figures.py" in line


def test_a_changed_record_is_reported(check, monkeypatch):
    import figure_values

    monkeypatch.setattr(figure_values, "read", lambda name: {"unsound": {"share_percent": 40}})
    monkeypatch.setattr("figures.read", figure_values.read)
    figure = next(one for one in check.FIGURES if "THREAD_PERCENTAGE" in one.text)
    (line,) = check.problems([figure], check.read_pages(ROOT))
    assert re.fullmatch(r"docs/performance.md:\d+: quoted 30, recorded 40 \(.*\)", line)


def test_numbers_without_an_entry_are_listed(check):
    page = """# Title
It gains 1.25 points, 7 % more, `1.5` in code.

<!-- generated: x -->
| 3.25 |
<!-- end -->
```
spml --lr 0.25
```
96.1 % of the first 500 suggestions are
missing labels; 2.4 % of all unknown labels are.
"""
    figures = [one for one in check.FIGURES if one.page == "docs/review.md"]
    lines = list(check.untied(figures, {"docs/review.md": page}))
    assert [line.split(": ")[1] for line in lines] == ["1.25", "7 %"]
    assert all(line.startswith("docs/review.md:2: ") for line in lines)
