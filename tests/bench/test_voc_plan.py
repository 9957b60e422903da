"""The plan of the VOC runs: its content and how records fill it."""

import sys
from pathlib import Path

import pytest

from .conftest import done, stored

ROOT = Path(__file__).parents[2]


@pytest.fixture
def voc_plan(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import voc_plan

    return voc_plan


def test_table_a_is_the_reference_runs(voc_plan):
    first = voc_plan.plans("original")[0]
    runs = first.runs(lambda name: None)
    assert [run.method for run in runs] == list(voc_plan.REFERENCE)
    wanted = {
        "backbone": "tf_efficientnet_lite0",
        "size": 448,
        "batch_size": 8,
        "epochs": 8,
        "lr": 5e-5,
        "head_lr": 10.0,
    }
    for run in runs:
        assert run.settings == {
            **wanted,
            "flip": True,
            "optimizer": "adam",
            "weights": "pretrained",
        }
        assert run.seed == 0 and run.data == "voc@original"
    assert {run.method: run.options for run in runs if run.options} == {"hill": {"variant": "gr"}}


def test_runs_of_two_tables_are_trained_once_and_final_runs_are_added(voc_plan, outcomes, tmp_path):
    known, look = outcomes
    every = voc_plan.plans("original")
    by_table = {plan.table: {run.id for run in plan.runs(look)} for plan in every}
    assert len(by_table["Table A"] & by_table["Table B"]) == 8
    assert len(by_table["Table B"] & by_table["Table 3"]) == 12  # AN, and GR with all its parts

    class RunStore(voc_plan.RunStore):
        def outcome(self, run_id):
            return known.get(run_id)

    store = RunStore(tmp_path)
    before = len(voc_plan.needed(every, store))
    assert set(voc_plan.to_come(every, store)) == {"Table B", "Table 3"}
    known |= {run.id: {"seed": run.seed, **done()} for run in voc_plan.needed(every, store)}
    assert len(voc_plan.needed(every, store)) > before and voc_plan.to_come(every, store) == {}
    assert voc_plan.against(every[0]) == "gr" and len(voc_plan.scored(every)) == 2 + 6
    assert "| gr | 40.00 | 87.44 | -47.44 |" in voc_plan.beside_reference(every[0], store)


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


def test_weight_files_are_found_by_backbone(voc_plan, tmp_path):
    files = voc_plan.weight_files(
        [str(tmp_path / "a.pth"), f"mobilenetv2_100={tmp_path / 'b.pth'}"]
    )
    assert files["tf_efficientnet_lite0"] == str(tmp_path / "a.pth")
    assert files["mobilenetv2_100"] == str(tmp_path / "b.pth")
