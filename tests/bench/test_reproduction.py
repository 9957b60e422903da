"""docs/reproduction.md and the plan of its runs: recorded numbers, and commands to repeat them."""

import csv
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import tyro

from spml.bench.plan import Case, Plan
from spml.cli import main
from spml.cli.commands.train import Train
from spml.cli.set_options import parse_options
from spml.train import Settings, fit
from spml.train.resolve import method_options
from tests.conftest import edit, stored

from .conftest import done

ROOT = Path(__file__).parents[2]
CLASSES = ["a", "b", "c"]


@pytest.fixture
def reproduction(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import reproduction

    return reproduction


def test_the_page_matches_the_recorded_runs(reproduction):
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    blocks = reproduction.Page(reproduction.Recorded.read()).blocks()
    assert all(f"<!-- generated: {name} -->" in page for name in blocks)
    assert reproduction.render(page, blocks) == page, "run python benchmarks/reproduction.py"


def test_the_list_of_runs_matches_the_records(reproduction):
    text = reproduction.RUNS.read_text(encoding="utf-8")
    assert text == reproduction.runs_csv(reproduction.Recorded.read()), (
        "run python benchmarks/reproduction.py"
    )
    rows = list(csv.DictReader(text.splitlines()))
    assert sum(row["part"] == "chosen trial" for row in rows if row["table"] == "Table B") == 15
    folder = ROOT / "benchmarks" / "results" / "voc2012-lite0"
    assert all((folder / row["record"]).is_file() for row in rows)


def test_the_table_of_the_readme_matches_the_recorded_runs(reproduction):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    known = reproduction.Recorded.read()
    assert "<!-- generated: voc -->\n| method" in page
    assert reproduction.render(page, {"voc": lambda: reproduction.readme_table(known)}) == page, (
        "run python benchmarks/reproduction.py"
    )
    assert "| `gr` | " in page and "not run yet" not in page
    # their rows of Table B "say little about the methods", as docs/reproduction.md has it
    assert "| `smile` | " not in page and "| `mime` | " not in page


def test_the_sensitivity_figure_uses_one_learning_rate_and_no_trials():
    drawn = json.loads((ROOT / "docs" / "figures" / "sensitivity.json").read_text(encoding="utf-8"))
    names = {
        point["run"] for study in drawn["study"] for point in (*study["points"], *study["levels"])
    } - {None}
    folder = ROOT / "benchmarks" / "results" / "voc2012-lite0"
    assert len(names) >= 4
    assert {
        json.loads((folder / f"{name}.json").read_text())["config"]["lr"] for name in names
    } == {5e-5}


def test_the_printed_commands_repeat_the_runs(reproduction):
    import recorded

    known = recorded.Recorded.read()
    common = shlex.split(recorded.shell_function().split('"$VOC"')[1].split('"$@"')[0])
    runs = [run for plan in known.every for run in plan.runs(known.store.outcome)]
    for run in {run.id: run for run in runs}.values():
        own = shlex.split(known.repeat([run]).strip("`").removeprefix("VOC=$ORIGINAL "))[1:]
        train = tyro.cli(Train, args=["voc", *common, *own])
        names = [*run.settings, *known.setup.common]
        case = Case("", train.method, parse_options(train.method, train.set), data=run.data)
        settings = {name: getattr(train, name) for name in names}
        plan = Plan("", "voc", (case,), (train.seed,), settings)
        assert plan.run(case, "final", train.seed).id == run.id, own


def test_the_recorded_figures_match_the_recorded_scores(capsys):
    folder = ROOT / "benchmarks" / "results" / "voc2012-lite0"
    assert main(["bench", "--verify", "--out", str(folder)]) == 0
    assert "test  87.46 recorded, scores give" in capsys.readouterr().out


def fill(known, folder, rng):
    """Write an artificial record for every needed run that has none."""
    for plan in known.every:
        for run in plan.runs(known.store.outcome):
            if (folder / f"{run.id}.json").exists():
                continue
            maps = (80 + rng.random(20)).round(3).tolist()
            precisions = dict(zip(CLASSES, (100 * rng.random(3)).tolist(), strict=True))
            options = method_options(run.method, "voc", run.options)
            config = {"data": "voc", "method": run.method, "options": options, "seed": run.seed}
            history = [{"epoch": 0, "val_map": 5.0}, {"epoch": 1, "val_map": 80.0}]
            record = done(
                85 + rng.random(),
                80 + rng.random(),
                result={"per_class_ap": precisions},
                seed=run.seed,
                config=config | run.settings,
                history=history,
                bootstrap={"seed": 1, "images": 9, "maps": maps},
                observed_counts=[3, 2, 1],
            )
            (folder / f"{run.id}.json").write_text(json.dumps(record))


@pytest.fixture
def filled(reproduction, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"pixels": "jpeg88-448"}))
    rng = np.random.default_rng(0)
    for _ in range(2):  # the second time, the final runs of rows with trials
        known = reproduction.Recorded.read(tmp_path, tmp_path / "plan.json")
        fill(known, tmp_path, rng)
    return reproduction.Recorded.read(tmp_path, tmp_path / "plan.json")


def test_with_all_runs_only_the_parts_that_need_scores_are_open(reproduction, filled):
    page = reproduction.Page(filled)
    shown = {name: block() for name, block in page.blocks().items()}
    assert {name for name, text in shown.items() if "not run yet" in text} == {
        "claims",
        "confidences",
    }
    assert shown["claims"].count("| not run yet |") == 4 and " 4 wait for runs." in shown["claims"]
    assert re.search(r"\| ll_r \| 80\.\d\d ± 0\.\d\d \| [+−]?\d\.\d\d \[", shown["table-b"])
    assert "\n\nTrials: 90 of 90 done." in shown["table-b"]
    assert re.search(
        r"an, copy minus original: [+−]?\d\.\d\d \[.*\], 3 of 3 pairs", shown["pixels"]
    )
    row = r"\| b\(0\) = −2 \| [+−]?\d\.\d\d \[.*\], 3 of 3 seeds \|"
    assert re.search(row, shown["switches"])
    assert "β: 18 of 18 settings run, test mAP from 80." in shown["sensitivity"]
    assert shown["state"].count(" of ") == len(filled.every)
    for done_, every in (filled.done(plan) for plan in filled.every):
        assert done_ == every


@pytest.fixture
def again(reproduction, filled, tmp_path):
    """Read the records again after they were changed."""
    return lambda: reproduction.Recorded.read(tmp_path, tmp_path / "plan.json")


def test_equal_budgets_have_nine_trials_and_the_draws_three_seeds_each(reproduction, filled):
    budgets, draws = filled.plan("equal budgets"), filled.plan("draws")
    look = filled.store.outcome
    assert {len({run.id for run in budgets.trials(case, look)}) for case in budgets.cases} == {9}
    trials = [run for case in budgets.cases for run in budgets.trials(case, look)]
    assert not any("eps" in run.options for run in trials)
    for case in draws.cases:
        finals = draws.finals(case, look)
        drawn = {(run.settings.get("observe_seed"), run.seed) for run in finals}
        assert len({run.id for run in finals}) == 9
        assert drawn == {(draw, seed) for draw in (None, 1201, 1202) for seed in (1, 2, 3)}
    lines = [row for row in filled.table(draws, "gr").rows if row.label != "gr"]
    assert {(row.versus.draws, row.versus.seeds) for row in lines} == {(3, 9)}


def test_the_settings_in_question_hold_the_paper_s_and_the_best_of_one_seed(reproduction):
    import claims
    from voc_plan import IN_QUESTION

    for study in claims.studies(reproduction.Recorded.read()):
        named = {label for pair in IN_QUESTION[study.name] for label in pair}
        lines = dict.fromkeys(point.line for point in study.points)
        if study.name in ("β", "α"):
            groups = [[p for p in study.points if p.line == line] for line in lines]
            assert named >= {max(some, key=lambda p: p.test_map).label for some in groups}
        else:
            assert max(study.points, key=lambda p: p.val_map).label in named


def test_an_unfinished_row_shows_its_number_of_seeds(reproduction, filled, again, tmp_path):
    import recorded

    plan = filled.plan("switches")
    run = filled.finals(plan, plan.cases[1])[0]
    (tmp_path / f"{run.id}.json").write_text(json.dumps({"id": run.id, "error": "no room"}))
    table = recorded.result_table(again(), again().plan("switches"))
    assert re.search(
        r"one schedule, t/T \| 80\.\d\d ± \d\.\d\d \(2 of 3 seeds\); failed: no room \|", table
    )
    (line,) = [line for line in recorded.runs_csv(again()).splitlines() if f"{run.id}.json" in line]
    assert f",{run.seed},not run yet,not run yet,{run.id}.json," in line


def test_early_stops_are_counted_or_reported_as_absent(reproduction, filled, again, tmp_path):
    plan = filled.plan("switches")
    case = next(case for case in plan.cases if case.label == "early stop")
    history = [{"epoch": at, "val_map": 80.0 - at * (at > 6)} for at in range(9)]
    for run in filled.finals(plan, case):
        edit(tmp_path / f"{run.id}.json", history=history)
    absent = "No run stopped early: validation mAP is never more than 8.00 below"
    assert absent in reproduction.Page(again()).switches()
    edit(tmp_path / f"{run.id}.json", history=history[:-1])
    assert reproduction.Page(again()).switches().endswith("\n\n1 of 3 runs stopped early.")


def test_a_figure_far_from_the_reference_is_named(reproduction, filled):
    sentence = reproduction.Page(filled).table_a().splitlines()[0]
    assert sentence.startswith("0 of 8 finished methods lie within 0.5") and "full (−" in sentence


def test_pictures_are_resized_once(reproduction, monkeypatch, tmp_path):
    import smaller_pictures
    from PIL import Image

    home = tmp_path / "VOC" / smaller_pictures.HOME
    (home / "ImageSets" / "Main").mkdir(parents=True)
    (home / "JPEGImages").mkdir()
    for split, name in (("train", "2008_1"), ("val", "2008_2")):
        (home / "ImageSets" / "Main" / f"{split}.txt").write_text(f"{name}\n")
        Image.new("RGB", (60, 40), (200, 30, 30)).save(home / "JPEGImages" / f"{name}.jpg")
    monkeypatch.setattr("sys.argv", ["", str(tmp_path / "VOC"), str(tmp_path / "small")])
    smaller_pictures.main()
    smaller = tmp_path / "small" / smaller_pictures.HOME
    assert Image.open(smaller / "JPEGImages" / "2008_1.jpg").size == (448, 448)
    assert (smaller / "ImageSets" / "Main" / "val.txt").read_text() == "2008_2\n"
    (smaller / "JPEGImages" / "2008_2.jpg").write_bytes(b"kept")
    smaller_pictures.main()
    assert (smaller / "JPEGImages" / "2008_2.jpg").read_bytes() == b"kept"


@pytest.fixture
def voc_plan(reproduction):
    import voc_plan

    return voc_plan


@pytest.fixture
def plans(reproduction):
    import plans

    return plans


def test_runs_of_two_tables_are_trained_once_and_final_runs_are_added(
    voc_plan, plans, outcomes, tmp_path
):
    known, look = outcomes
    every = voc_plan.plans("original")
    by_table = {plan.table: {run.id for run in plan.runs(look)} for plan in every}
    assert len(by_table["Table A"] & by_table["Table B"]) == 8
    assert len(by_table["Table B"] & by_table["Table 3"]) == 12  # AN, and GR with all its parts

    class RunStore(plans.RunStore):
        def outcome(self, run_id):
            return known.get(run_id)

    store = RunStore(tmp_path)
    before = len(plans.needed(every, store))
    tuned = {"Table B", "Table 3", "equal budgets", "draws", "query heads, tuned", "role, tuned"}
    assert set(plans.to_come(every, store)) == tuned
    for _ in range(2):  # the second time, the trials that follow the learning rates
        known |= {run.id: {"seed": run.seed, **done()} for run in plans.needed(every, store)}
    assert len(plans.needed(every, store)) > before and plans.to_come(every, store) == {}
    assert plans.against(every[0]) == "gr" and len(plans.scored(every)) == 2 + 6
    assert "| gr | 40.00 | 87.44 | -47.44 |" in plans.beside_reference(
        every[0], store, voc_plan.REFERENCE
    )


TINY = {"backbone": "tiny", "weights": "none", "size": None, "epochs": 2, "batch_size": 64}


def test_the_runs_with_rates_for_transformers_are_new_and_each_row_trains(
    voc_plan, scenes, tmp_path
):
    recorded = {path.stem for path in voc_plan.VOC.results.glob("*.json")}
    tables = {plan.table: plan for plan in voc_plan.plans("jpeg88-448")}
    for plan in (tables[voc_plan.TUNED_HEADS], tables["role, tuned"]):
        trials = plan.runs(lambda run_id: None)
        trials_of_a_row = 6 if plan.table == "role, tuned" else 9
        assert len({run.id for run in trials} - recorded) == trials_of_a_row * len(plan.cases)
        for case in plan.cases:
            run = plan.run(case, "trial", 0, {}, **TINY)
            settings = Settings(method=run.method, accelerator="cpu", **run.settings)
            result = fit(scenes, settings, tmp_path / run.id, options=run.options, quiet=True)
            head = "linear" if run.method == "role" else "query"
            assert result["test_map"] > 0 and result["head"].startswith(head)


def test_the_plan_is_written_without_data_or_device(voc_plan, tmp_path, monkeypatch, capsys):
    plan = tmp_path / "plan.json"
    words = [
        "voc_plan.py",
        "--plan",
        str(plan),
        "--results",
        str(tmp_path / "results"),
        "--pixels",
        "original",
    ]
    monkeypatch.setattr(sys, "argv", words)
    voc_plan.main()
    assert " pending, 0 running, 0 done, 0 failed" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", words[:5])  # the pixels are now the plan's
    voc_plan.main()
    assert stored(plan)["pixels"] == "original" and stored(plan)["runs"][0]["state"] == "pending"
    monkeypatch.setattr(sys, "argv", [*words[:5], "--tables"])
    voc_plan.main()
    assert "**Table A, voc@original" in capsys.readouterr().out


def test_weight_files_are_found_by_backbone(plans, tmp_path):
    files = plans.weight_files([str(tmp_path / "a.pth"), f"mobilenetv2_100={tmp_path / 'b.pth'}"])
    assert files["tf_efficientnet_lite0"] == str(tmp_path / "a.pth")
    assert files["mobilenetv2_100"] == str(tmp_path / "b.pth")
