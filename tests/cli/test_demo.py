"""`spml demo` is a bench of three methods on digits, with a report."""

from types import SimpleNamespace

import pytest

from spml.cli import main
from spml.cli.commands.bench import Bench
from spml.cli.commands.demo import Demo

from ..bench.conftest import done


def test_every_method_and_seed_is_trained_in_its_folder_and_reported(tmp_path, monkeypatch, capsys):
    trained, pages = [], []

    def train(run, job, data):
        trained.append((run.data, run.method, run.seed, run.settings, job.store.run_folder(run)))
        return done(test_map=50.0 + run.seed + 10 * (run.method == "gr"))

    monkeypatch.setattr("spml.bench.workers._train", train)
    monkeypatch.setattr("spml.report.write_report", lambda runs, page: pages.append(runs) or page)
    words = ["--methods", "an", "gr", "--seeds", "2", "--epochs", "4", "--jobs", "1"]
    assert main(["demo", "--out", str(tmp_path), *words]) == 0
    expected = [
        ("digits", method, seed, {"epochs": 4}, tmp_path / f"{method}-{seed}")
        for method in ("an", "gr")
        for seed in (0, 1)
    ]
    assert trained == expected
    folders = sorted(run[-1] for run in expected)
    assert sorted(pages[:-1]) == [[folder] for folder in folders]  # a page for each run
    assert sorted(pages[-1]) == folders  # and one that compares them
    shown = capsys.readouterr()
    assert "50.50 ± 0.71" in shown.out and "60.50 ± 0.71" in shown.out
    assert f"report: {tmp_path / 'report.html'}" in shown.out
    assert "gr, seed 1: validation 50.00, test mAP 61.00" in shown.err
    assert main(["demo", "--out", str(tmp_path), *words]) == 0
    assert len(trained) == 4  # finished runs are not repeated


def test_a_failed_run_is_retried_and_the_others_are_reported(tmp_path, monkeypatch, capsys):
    pages, records = [], {"an": done(), "gr": {"error": "no"}}
    monkeypatch.setattr("spml.bench.workers._train", lambda run, job, data: records[run.method])
    monkeypatch.setattr("spml.report.write_report", lambda runs, page: pages.append(runs) or page)
    words = ["demo", "--out", str(tmp_path), "--methods", "an", "gr", "--seeds", "1", "--jobs", "1"]
    assert main(words) == 1 and pages == [[tmp_path / "an-0"]] * 2
    assert "runs that failed: 1" in capsys.readouterr().err
    records["gr"] = done()
    assert main(words) == 0 and len(pages[-1]) == 2


@pytest.mark.parametrize(("cores", "jobs", "workers"), [(2, None, 2), (64, None, 9), (64, 3, 3)])
def test_every_core_trains_a_run_and_no_worker_is_idle(monkeypatch, tmp_path, cores, jobs, workers):
    asked = []

    def fill(self, store):
        asked.append((self.jobs, store.layout))
        return SimpleNamespace(runs=lambda outcomes: []), {"pending": 0, "running": 0, "failed": 0}

    monkeypatch.setattr("spml.machine.cores", lambda: cores)
    monkeypatch.setattr(Bench, "fill", fill)
    Demo(out=tmp_path, jobs=jobs).run()
    assert asked == [(workers, "method")]
