"""Options and steps of commands that train many runs, without training."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from spml.bench.search import Grid, Tune
from spml.cli.commands.bench import Bench
from spml.cli.many_runs import ManyRuns
from spml.cli.set_options import option_text, parse_options
from spml.train.resolve import data_defaults


def test_changed_settings_separate_defining_from_execution_settings():
    defining, execution = ManyRuns(
        data="digits", lr=0.1, classes=Path("c.txt"), root=Path("x"), accelerator="cpu"
    ).changed_settings()
    assert defining == {"lr": 0.1, "classes": "c.txt"} and execution == {"accelerator": "cpu"}
    assert ManyRuns(data="digits", seed=3, jobs=2, resamples=5).changed_settings() == ({}, {})


def test_pending_and_failed_runs_are_reported(capsys):
    command, store = ManyRuns(data="digits"), SimpleNamespace(path=Path("b"))
    command.report_open({"pending": 0, "running": 0, "failed": 0}, store)
    assert capsys.readouterr().err == ""
    command.report_open({"pending": 2, "running": 1, "failed": 0}, store)
    assert capsys.readouterr().err.startswith("spml: runs pending or owned by other processes: 3;")
    with pytest.raises(SystemExit) as ended:
        command.report_open({"pending": 0, "running": 0, "failed": 2}, store)
    assert ended.value.code == 1
    assert "runs that failed: 2, see b/plan.json; --retry" in capsys.readouterr().err


def test_parallel_runs_share_the_cores(monkeypatch):
    monkeypatch.setattr("spml.cli.many_runs.cores", lambda: 8)
    threads = [ManyRuns(data="digits", jobs=jobs).threads for jobs in (1, 2, 3, 20)]
    assert threads == [None, 4, 2, 1]


def test_options_are_read_as_they_are_written():
    options = {"q3": 1.5, "w": [0, 10], "variant": "paper", "eps": None}
    pairs = [f"{name}={option_text(value)}" for name, value in options.items()]
    assert parse_options("gr", pairs) == options


def test_grid_rates_are_the_users_or_multiples_of_the_default(scenes):
    def search(**options):
        return Bench(data="scenes.npz", methods=("an",), **options).plan(scenes).search

    assert search(grid=True, lr=0.01) == Grid((0.004, 0.01, 0.02))
    assert search(grid=True, rates=(0.3,)) == Grid((0.3,))
    assert search(grid=True).rates[1] == data_defaults(scenes).lr
    assert search(tune=True, trials=4, lr=0.01) == Tune(4, 0.01)
