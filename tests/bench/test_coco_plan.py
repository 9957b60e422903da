"""The plan of the runs on COCO, and the staged lists it reads."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from spml.data import load
from tests.conftest import stored

from .conftest import done

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.fixture
def coco_plan(benchmarks):
    import coco_plan

    return coco_plan


def test_runs_on_the_whole_lists_take_the_settings_chosen_on_22k(coco_plan, outcomes):
    known, look = outcomes
    every = {plan.table: plan for plan in coco_plan.plans("22k")}
    tuned, whole = every["equal budgets"], every["whole"]
    assert all(whole.undecided(case, look) for case in whole.cases)
    for case in tuned.cases:
        transformer = case.method in ("smile", "mime")
        # the six others depend on the first three
        assert len(tuned.trials(case, look)) == (9 if transformer else 3)
        for _ in range(2):
            for place, run in enumerate(tuned.trials(case, look)):
                known[run.id] = {"seed": run.seed, **done(50.0 - abs(place - 4))}
        assert len({run.id for run in tuned.trials(case, look)}) == 9, case.label
    for case in whole.cases:
        own = next(one for one in tuned.cases if one.label == case.label)
        finals = whole.finals(case, look)
        assert [run.seed for run in finals] == [1, 2, 3]
        assert {run.data for run in finals} == {"coco@whole"} and finals[0].table == "whole"
        best = tuned.finals(own, look)[0]
        assert (finals[0].options, finals[0].settings) == (best.options, best.settings)
        chosen = tuned.trials(own, look)[4]
        assert (best.options, best.settings) == (chosen.options, chosen.settings)


def test_the_first_runs_are_those_with_reference_figures(coco_plan, outcomes):
    import plans

    _, look = outcomes
    table = coco_plan.plans("22k")[0]
    assert {case.label for case in table.cases} == set(coco_plan.REFERENCE)
    published, tuned = coco_plan.plans("22k")[1:3]
    trials = {run.id for case in tuned.cases for run in tuned.trials(case, look)}
    assert {run.id for run in published.runs(look)} <= trials and len(published.cases) == 15
    selected = plans.scored(coco_plan.plans("22k"))
    assert sorted(name.partition("-")[0] for name in selected) == ["an", "gr"]


def test_the_page_matches_the_recorded_runs(benchmarks):
    import coco_page

    page = coco_page.COCO_PAGE.read_text(encoding="utf-8")
    known = coco_page.CocoPage(coco_page.Recorded.read(setup=coco_page.COCO))
    assert all(f"<!-- generated: {name} -->" in page for name in known.blocks())
    remedy = "run python benchmarks/coco_page.py"
    assert coco_page.render(page, known.blocks()) == page, remedy
    assert coco_page.RUNS.read_text(encoding="utf-8") == coco_page.runs_csv(known.known), remedy


@pytest.fixture
def staged(tmp_path):
    """Five pictures, as `stage.py coco` leaves them."""
    folder = tmp_path / "staged"
    (folder / "pictures").mkdir(parents=True)
    rows = [(9, "dog", "train"), (100, "cat|dog", "train"), (25, "toothbrush", "train")]
    rows += [(30, "person", "train"), (7, "bird", "test")]
    with (folder / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "label", "split"])
        for number, labels, split in rows:
            picture = f"pictures/{number:012d}.jpg"
            Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / picture)
            table.writerow([picture, labels, split])
    return folder


def run(monkeypatch, module, *words):
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, words)])
    module.main()


def test_official_files_hold_the_staged_labels(benchmarks, staged, tmp_path, monkeypatch):
    import stage

    root = tmp_path / "coco"
    run(monkeypatch, stage, "official", staged, "--out", root, "--train", 3)
    run(monkeypatch, stage, "official", staged, "--out", root, "--train", 3)
    experiment = load("coco", root)
    assert [Path(item).stem[-3:] for item in experiment.observed.items] == ["100", "025", "009"]
    assert all((root / item).is_file() for item in experiment.observed.items)
    names = np.array(experiment.classes)
    assert len(names) == 80
    positives = [names[row == 1].tolist() for row in experiment.complete.labels]
    assert positives == [["cat", "dog"], ["toothbrush"], ["dog"]]
    assert names[experiment.test.labels[0] == 1].tolist() == ["bird"]


def test_a_rehearsal_trains_tiny_models_and_records_apart(
    coco_plan, staged, tmp_path, monkeypatch, capsys
):
    import plans

    assert plans.rehearsed(coco_plan.plans("22k")[-1]).search.plan.cases[0].settings["size"] == 64
    words = ("--rehearse", "--scratch", tmp_path / "scratch")
    run(monkeypatch, coco_plan, *words)
    plan = stored(tmp_path / "scratch" / "rehearsal" / "plan.json")
    assert {run["settings"]["backbone"] for run in plan["runs"]} == {"tiny"}
    assert f"{len(plan['runs'])} pending" in capsys.readouterr().out


def test_records_return_in_archives_of_limited_size(benchmarks, tmp_path, monkeypatch, capsys):
    import away

    monkeypatch.setattr(away, "ROOT", tmp_path / "repository")
    monkeypatch.setattr(away, "PIECE_LIMIT", 3000)
    records = tmp_path / "home" / "code" / away.RESULTS
    (records / "scores" / "c").mkdir(parents=True)
    for name in ("a.json", "b.json", "scores/c/test.npz"):
        (records / name).write_text(name * 100)
    (tmp_path / "home" / "log").write_text("Table A; an\n")
    run(monkeypatch, away, "pack", "--home", tmp_path / "home", "--out", tmp_path / "out")
    assert "3 new files; the plan has ended" in capsys.readouterr().out
    assert len(list((tmp_path / "out").glob("records-*.tar"))) == 2
    stored = tmp_path / "repository" / away.RESULTS
    stored.mkdir(parents=True)
    (stored / "a.json").write_text("stored")
    run(monkeypatch, away, "keep", tmp_path / "out", "--results", stored)
    assert (stored / "a.json").read_text() == "stored"
    assert (stored / "b.json").read_text() == "b.json" * 100 and (stored / "scores" / "c").is_dir()
    assert capsys.readouterr().out.startswith("2 new files")


def test_pieces_are_carried_one_by_one(benchmarks, staged, tmp_path, monkeypatch, capsys):
    import away
    import stage

    monkeypatch.setattr(away, "CARRY", tmp_path / "carry")
    run(monkeypatch, stage, "parts", staged, "--out", tmp_path / "parts", "--megabytes", 0)
    for number in range(len(list((tmp_path / "parts").iterdir()))):
        run(monkeypatch, away, "put", tmp_path / "parts", number)
        run(monkeypatch, away, "unpack", "--home", tmp_path / "home")
    assert capsys.readouterr().out.strip().endswith(f"5 pictures in {tmp_path / 'home'}")
    words = away.roots(tmp_path / "home", ["few=4,1"])
    assert words == ["--data", f"few={tmp_path / 'home' / 'roots' / 'few'}"]
    assert len(load("coco", tmp_path / "home" / "roots" / "few").observed) == 4
