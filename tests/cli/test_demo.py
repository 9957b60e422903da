"""`spml demo` is a bench of three methods on digits, with a report."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from spml.cli.commands.bench import Bench
from spml.cli.commands.demo import Demo
from tests.conftest import outcome, spml


def test_every_method_and_seed_is_trained_in_its_folder_and_reported(here, capsys):
    line = "demo --out d --seeds 2 --epochs 1 --methods an gr --jobs 1"
    assert spml(line) == 0
    shown = capsys.readouterr()
    for name in ("an-0", "an-1", "gr-0", "gr-1"):
        result = outcome(Path("d") / name)
        assert (result["data"], result["epochs"]) == ("digits", 1)
        assert f"{result['method']}, seed {result['seed']}: validation" in shown.err
        assert Path("d", name, "report.html").exists()
    assert "±" in shown.out and "report: d/report.html" in shown.out
    assert all(name in Path("d/report.html").read_text() for name in ("an", "gr"))
    assert spml(line) == 0
    assert "validation" not in capsys.readouterr().err  # finished runs are not repeated


def test_a_failed_run_is_retried_and_the_others_are_reported(here, monkeypatch, capsys):
    Path("mine_demo.py").write_text("def loss(logits, observed):\n    raise OSError('not yet')\n")
    monkeypatch.syspath_prepend(here)
    line = "demo --out d --methods an mine_demo:loss --seeds 1 --epochs 1 --jobs 1"
    assert spml(line) == 1
    shown = capsys.readouterr()
    assert "runs that failed: 1" in shown.err and "report: d/report.html" in shown.out
    sys.modules["mine_demo"].loss = lambda logits, observed: logits.square().mean()
    assert spml(line) == 0
    assert len(list(Path("d").glob("*/result.json"))) == 2


@pytest.mark.parametrize(("cores", "jobs", "workers"), [(2, None, 2), (64, None, 9), (64, 3, 3)])
def test_every_core_trains_a_run_and_no_worker_is_idle(monkeypatch, tmp_path, cores, jobs, workers):
    asked = []

    def fill(self, store):
        asked.append((self.jobs, store.layout))
        return SimpleNamespace(runs=lambda outcomes: []), {"pending": 0, "running": 0, "failed": 0}

    monkeypatch.setattr("spml.cli.commands.demo.cores", lambda: cores)
    monkeypatch.setattr(Bench, "fill", fill)
    Demo(out=tmp_path, jobs=jobs).run()
    assert asked == [(workers, "method")]
