"""The declared grid, and runs found again in a folder."""

import json
from dataclasses import replace

import pytest

from spml.analysis.archive import FinishedRun, comparable, find, run_of
from spml.analysis.figures import FIGURES, Source, draw, study_cases
from spml.analysis.sensitivity import GR, LINES, STUDIES, sensitivity, short_form
from tests.conftest import edit, stored


def test_the_grid_is_the_papers():
    beta, alpha, q, moving = STUDIES
    assert {(point.options["b"][1], point.x) for point in beta.points} == {
        (b, tau) for b in (-2, -5, -8) for tau in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    }
    assert {(point.options["sigma"][1], point.x) for point in alpha.points} == {
        (sigma, mu) for sigma in (0.1, 0.5, 1) for mu in (0.2, 0.4, 0.6, 0.8, 1.0)
    }
    assert all((point.options["w"][0], point.options["b"][0]) == (0, -2) for point in beta.points)
    assert all(
        (point.options["mu"][0], point.options["sigma"][0]) == (0.5, 2) for point in alpha.points
    )
    qs = (0.01, 0.25, 0.5, 0.75, 1)
    assert {(point.options["q2"], point.x) for point in q.points} == {
        (q2, q3) for q2 in qs for q3 in (*qs, 1.5)
    }
    assert [point.options["q3"] for point in moving.points] == [1.0, 0.01, (0.01, 1.0), (1.0, 0.01)]
    assert [len(study.points) for study in short_form()] == [4, 4, 4, 4]


def published(**more):
    from spml.train.resolve import method_options

    options = {**method_options("gr", "toy", {}), **more}
    return {"options": options, "options_from_data": ["b", "w"]}


def test_a_run_is_identified_by_its_configuration(make, tmp_path):
    make("one", **published())
    make("other", **published(q3=[0.01, 1.0]))
    make("seed", seed=1, **published())
    make("rate", lr=0.2, **published(q3=0.01))
    make("level", method="an", head="linear")  # later versions name the head; the value is the same
    runs, problems = find(tmp_path)
    assert len(runs) == 5 and problems == []
    group = comparable(runs, study_cases(STUDIES))
    assert {run.name for run in group} == {"one", "other", "level"}
    assert run_of(GR, group).name == "one"
    assert run_of(LINES[0], group).name == "level"
    assert run_of(LINES[1], group) is None
    assert {run.name for run in comparable(runs, [GR], {"lr": 0.2})} == {"rate"}
    both = [run for run in runs if run.name in ("one", "seed")]
    # with equally many runs, the lower seed wins
    assert [run.name for run in comparable(both, [GR])] == ["one"]
    better = replace(
        both[0], name="better", config={**both[0].config, "lr": 0.3}, result={"val_map": 99.0}
    )
    # then the better figures
    assert [run.name for run in comparable([*both, better], [GR])] == ["better"]
    for study, result in zip(STUDIES, sensitivity(group), strict=True):
        assert [(p.line, p.x, p.label) for p in result.points] == [
            (p.line, p.x, p.label) for p in study.points
        ]
        assert [(level.line, level.label) for level in result.levels] == [
            ("AN", "AN"),
            ("EM", "EM"),
        ]
    *_, moving = sensitivity(group)
    assert [point.run for point in moving.points] == ["one", None, "other", None]
    assert moving.points[0].by_epoch == (0.0, 10.0, 20.0) and moving.levels[0].test_map == 40.0
    assert len(sensitivity(group)[0].done) == 1  # the published setting is a point of every grid


@pytest.mark.parametrize(("selection", "name"), [("complete", "mAP"), ("observed", "estimate")])
def test_the_axes_name_the_validation_figure(make, tmp_path, selection, name):
    file = make("gr-0", **published()) / "result.json"
    edit(file, selection=selection, test_map=None)
    draw(FIGURES["c"], Source(find(tmp_path)[0]), tmp_path)
    assert (tmp_path / "sensitivity.svg").read_text(encoding="utf-8").count(
        f">validation {name}, %<"
    ) == 4


@pytest.mark.parametrize(
    ("file", "message"),
    [("result.json", "the result lacks val_map, best_epoch"), ("config.json", "lacks data")],
)
def test_a_run_with_an_incomplete_configuration_is_left_out(make, tmp_path, file, message):
    (make("gr-0", **published()) / file).write_text("{}")
    make("gr-1", **published())
    (run,), (problem,) = find(tmp_path)
    assert run.name == "gr-1" and "gr-0" in problem and message in problem


def test_a_record_and_a_folder_of_one_run_are_merged(make, tmp_path):
    folder = make("scores/gr-1", **published())
    result = {"val_map": 1.0, "best_epoch": 1, "selection": "complete"}
    record = {
        "config": stored(folder / "config.json"),
        "history": [],
        "result": result,
    }
    (tmp_path / "gr-1.json").write_text(json.dumps(record))
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    (run,), problems = find(tmp_path)
    assert run.folder == folder and run.result == result
    assert len(problems) == 1 and "broken.json: not JSON" in problems[0]


def test_a_run_is_comparable_with_one_of_an_older_version():
    before = {"data": "voc", "method": "gr", "options": {}, "weights": "none"}
    noted = {**before, "classes": None, "sample_sha256": "a"}
    old, new = (FinishedRun("a", config, [], {}) for config in (before, noted))
    assert old.setting() == new.setting()
