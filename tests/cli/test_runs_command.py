"""What commands that make many runs have in common, without any run."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from spml.cli.compare import _table
from spml.cli.runs_command import RunsCommand
from spml.errors import UserError


def test_only_what_was_given_is_of_the_run_and_not_how_or_where_it_is_made():
    given, making = RunsCommand(
        data="digits", lr=0.1, classes=Path("c.txt"), root=Path("x"), accelerator="cpu"
    )._given()
    assert given == {"lr": 0.1, "classes": "c.txt"} and making == {"accelerator": "cpu"}
    assert RunsCommand(data="digits", seed=3, jobs=2, resamples=5)._given() == ({}, {})


def test_open_and_failed_runs_are_told(capsys):
    command, shelf = RunsCommand(data="digits"), SimpleNamespace(path=Path("b"))
    command._tell({"pending": 0, "running": 0, "failed": 0}, shelf)
    assert capsys.readouterr().err == ""
    command._tell({"pending": 2, "running": 1, "failed": 0}, shelf)
    assert capsys.readouterr().err.startswith(
        "spml: runs that are open or being made by others: 3;"
    )
    with pytest.raises(SystemExit) as ended:
        command._tell({"pending": 0, "running": 0, "failed": 2}, shelf)
    assert (
        ended.value.code == 1
        and "runs that failed: 2, see b/plan.json; --retry" in capsys.readouterr().err
    )


def test_counts_are_at_least_one_and_resamples_may_be_none():
    RunsCommand(data="digits", jobs=1, resamples=0)._check_counts(["jobs"])
    for words in ({"jobs": 0}, {"resamples": -1}):
        with pytest.raises(UserError, match=f"--{next(iter(words))} must be at least"):
            RunsCommand(data="digits", **words)._check_counts(["jobs"])


def test_a_path_is_not_taken_for_a_version_of_a_benchmark():
    for data in ("voc", "digits", "mine@home.npz", "./coco@small.npz", "/data/coco@small.npz"):
        RunsCommand(data=data)._check_name()
    with pytest.raises(
        UserError,
        match=r"coco@small.npz would be taken for a version of coco; write ./coco@small.npz",
    ):
        RunsCommand(data="coco@small.npz")._check_name()


def test_runs_side_by_side_share_the_cores(monkeypatch):
    monkeypatch.setattr("spml.cli.runs_command.cores", lambda: 8)
    threads = [
        RunsCommand(data="digits", jobs=jobs)._job(None, None).threads for jobs in (1, 2, 3, 20)
    ]
    assert threads == [None, 4, 2, 1]


def test_workers_are_looked_at_until_all_have_ended_and_stopped_in_any_case(monkeypatch):
    monkeypatch.setattr("spml.cli.runs_command.LOOK", 0)
    seen, alive = [], [True, True, False]
    told = {"check": lambda: seen.append("check"), "stop": lambda: seen.append("stop")}
    workers = SimpleNamespace(alive=lambda: alive.pop(0), **told)
    RunsCommand(data="digits")._wait(workers, SimpleNamespace(update=lambda: seen.append("look")))
    assert seen == ["look", "look", "look", "check", "stop"]  # once more for what was done last


def test_a_table_of_methods_has_means_and_where_it_can_deviations(capsys):
    from rich.console import Console

    Console(width=80).print(
        _table(
            {"an": [{"test_map": 50.0}, {"test_map": 52.0}], "gr": [{"test_map": 61.0}]}, "digits"
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert "digits: mean ± deviation" in lines[0]
    assert [line.replace("│", "").split() for line in lines[4:6]] == [
        ["an", "51.00", "±", "1.41", "2"],
        ["gr", "61.00", "1"],
    ]


def test_methods_and_seeds_are_trained_each_in_its_folder_and_reported(
    tmp_path, monkeypatch, capsys
):
    from concurrent.futures import ThreadPoolExecutor

    from spml.cli import compare as module

    made, pages = [], []
    monkeypatch.setattr(
        module, "ProcessPoolExecutor", lambda workers, context: ThreadPoolExecutor(workers)
    )
    monkeypatch.setattr("spml.report.write_report", lambda runs, page: pages.append(runs) or page)

    def train(data, method, seed, epochs, folder, workers):
        made.append((data, method, seed, epochs, folder.name, workers))
        return {"test_map": 50.0 + seed + 10 * (method == "gr")}

    monkeypatch.setattr(module, "_train", train)
    found = module.compare("digits", ["an", "gr"], 2, tmp_path, epochs=4, jobs=3)
    names = ["an-0", "gr-0", "an-1", "gr-1"]
    assert {m: sorted(r["test_map"] for r in results) for m, results in found.items()} == {
        "an": [50, 51],
        "gr": [60, 61],
    }
    assert sorted(made) == sorted(("digits", n[:2], int(n[3]), 4, n, 3) for n in names)
    assert [[run.name for run in runs] for runs in pages] == [names]
    out = capsys.readouterr().out
    assert "gr     seed 1: test mAP 61.00" in out and f"report: {tmp_path / 'report.html'}" in out
