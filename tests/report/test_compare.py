"""The values of a comparison page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spml.report.compare import _classes, _notes, _warnings
from spml.report.groups import Group, group_runs
from spml.report.results import results
from spml.runs.run import Run

Make = Callable[..., Path]
RUNS = (
    ("full", 0, 90.0, 80.0),
    ("gr", 0, 60.0, 71.0),
    ("role", 0, 60.001, 70.0),
    ("an", 0, 50.0, 70.0),
    ("an", 1, 52.0, 60.0),
)


@pytest.fixture
def groups(make_run: Make, small: dict[str, Any], edit: Any) -> list[Group]:
    folders = []
    for method, seed, test, val in RUNS:
        folders.append(make_run(f"{method}-{seed}", method, seed, **small))
        edit(folders[-1] / "result.json", test_map=test, val_map=val)
    folders.append(make_run("an-2", "an", 2, **small))
    (folders[-1] / "result.json").unlink()
    return group_runs([Run.read(folder) for folder in folders])


def cells(table: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("label", *names)) for row in table["rows"]]


def test_all_groups_with_the_best_printed_figure_are_marked_except_the_bound(
    groups: list[Group],
) -> None:
    table = results(groups, comparable=True, one_selection=True)
    assert cells(table, "test", "test_best", "val_best", "bound", "difference") == [
        ("full", "90.00", False, False, True, "+39.00"),
        ("role", "60.00", True, False, False, "+9.00"),
        ("gr", "60.00", True, True, False, "+9.00"),  # the same as printed
        ("an", "51.00 ± 1.41", False, False, False, "–"),
    ]
    assert cells(table, "seeds", "open")[-1] == ("an", "2", 1)
    assert (
        table["has_base"]
        and table["ranked"]
        and table["key"] == "test"
        and not table["mixed_selection"]
    )


def test_runs_that_are_not_comparable_are_not_ranked(groups: list[Group]) -> None:
    table = results(groups, comparable=False, one_selection=False)
    assert not table["has_base"] and not table["ranked"] and table["mixed_selection"]
    assert not any(best for row in cells(table, "test_best", "val_best") for best in row[1:])
    mixed = results(groups, comparable=True, one_selection=False)
    assert [row[1:] for row in cells(mixed, "test_best", "val_best")][1:3] == [
        (True, False),
        (True, False),
    ]
    assert not results(groups[1:2], comparable=True, one_selection=True)[
        "ranked"
    ]  # one alone is not the best


def test_without_test_figures_validation_is_compared(groups: list[Group], edit: Any) -> None:
    folders = [run.folder for group in groups for run in group.finished]
    for folder in folders:
        edit(folder / "result.json", test_map=None)
    table = results(
        group_runs([Run.read(folder) for folder in folders]), comparable=True, one_selection=True
    )
    assert table["key"] == "val" and ("gr", "+6.00", "–") in cells(table, "difference", "test")


def test_notes_name_the_runs_and_warnings_name_repeated_seeds(
    groups: list[Group], make_run: Make, small: Any
) -> None:
    runs = [run for group in groups for run in group.runs]
    (note,) = _notes(runs)
    assert note.startswith("an-2: This run has not finished")
    assert _warnings(runs, groups) == []
    again = [*runs, Run.read(make_run("gr-again", "gr", 0, **small))]
    (warning,) = _warnings(again, group_runs(again))
    assert warning.startswith("gr: several runs have the same seed")


def test_the_ap_of_a_class_is_the_mean_of_its_runs(
    make_run: Make, small: dict[str, Any], edit: Any
) -> None:
    folders = [make_run(f"an-{s}", "an", s, classes=("cat", "dog"), **small) for s in range(2)]
    for folder, value in zip(folders, (10.0, 30.0), strict=True):
        edit(folder / "result.json", per_class_ap={"cat": value, "dog": 2 * value})
    groups = group_runs([Run.read(folder) for folder in folders])
    classes = _classes(groups)
    assert classes is not None and not classes["many"]
    assert "20.0" in str(classes["table"]) and "40.0" in str(classes["table"])
    other = Run.read(make_run("gr", "gr", classes=("cat", "owl"), **small))
    assert _classes([*groups, *group_runs([other])]) is None


def test_an_unfinished_run_hides_no_class(
    groups: list[Group], make_run: Make, small: dict[str, Any]
) -> None:
    for folder in (groups[-1].runs[-1].folder, make_run("asl", "asl", **small)):
        (folder / "result.json").unlink(missing_ok=True)
        (folder / "scores" / "test.npz").unlink()
    folders = [run.folder for group in groups for run in group.runs]
    classes = _classes(group_runs([Run.read(folder) for folder in folders]))
    assert classes is not None and classes["basis"] == "on the test set"
    only = group_runs([Run.read(folders[0].parent / "asl")])
    beside = _classes([*groups, *only])
    assert beside is not None and {cells[4] for _, cells in beside["table"]["rows"]} == {"–"}
    alone = _classes(only)
    assert alone is not None and alone["basis"] == "on the validation set"
