"""`spml bench`, `ablate`, `figures` and `demo` from the command line."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from spml.cli import main
from spml.cli.commands.bench import Bench
from spml.cli.commands.demo import Demo
from spml.data.readers import digits
from tests.conftest import outcome, spml

SMALL = "--labels complete --backbone tiny --epochs 1 --lr 0.003 --accelerator cpu"


def test_a_bench_trains_resumes_prints_and_verifies(scenes_file, here, capsys):
    methods = "--methods an,gr hill --set hill.variant=gr"
    line = f"bench {scenes_file} {SMALL} {methods} --seeds 1 --out b"
    assert spml(f"{line} --format md") == 0
    shown = capsys.readouterr()
    assert shown.out == Path("b/table.md").read_text()
    assert "| hill |" in shown.out and "− gr" in shown.out
    assert "an, seed 0: validation" in shown.err
    assert "bench.json, table.md, table.csv, table.tex, table.html" in shown.err
    assert spml(f"{line} --quiet") == 0
    shown = capsys.readouterr()
    assert "seed 0" not in shown.err and "test mAP" in shown.out
    runs = json.loads(Path("b/bench.json").read_text())["runs"]
    assert {record["options"].get("variant") for record in runs.values()} == {None, "gr"}
    config = json.loads(next(Path("b/runs").glob("hill-*/config.json")).read_text())
    pairs = list(pairwise(shlex.split(config["command"])))
    folder = Path("b/runs") / next(run for run in runs if run.startswith("hill-"))
    for pair in (("--set", "variant=gr"), ("--accelerator", "cpu"), ("--out", str(folder))):
        assert pair in pairs  # the command repeats the run
    assert spml("bench --from b/bench.json --format csv --against an") == 0
    assert capsys.readouterr().out.startswith("row,seeds,test,")
    assert spml("bench --verify --out b") == 0
    assert capsys.readouterr().out.count("scores give") == 6
    result = next(Path("b/runs").glob("an-*/result.json"))
    result.write_text(result.read_text().replace('"test_map": ', '"test_map": 9'))
    assert spml("bench --verify --out b --quiet") == 1
    shown = capsys.readouterr()
    assert shown.out.count("DIFFERS") == 1 and len(shown.out.splitlines()) == 1
    shutil.rmtree(next(Path("b/runs").glob("gr-*")))
    assert spml("bench --verify --out b --quiet") == 1
    assert "recorded without scores, not checked: 1 runs" in capsys.readouterr().err


@pytest.mark.parametrize("complete", [True, False])
def test_all_methods_are_those_that_the_labels_allow(scenes_file, complete):
    from spml import losses
    from spml.cli.commands.bench import Bench
    from spml.data import load

    data = load(scenes_file, labels="complete" if complete else "observed")
    names = [case.label for case in Bench(data="scenes", methods=("all",)).plan(data).cases]
    assert names == [name for name in losses.names() if complete or name != "full"]


def test_changed_data_are_not_mixed_with_earlier_runs(scenes_file, here, capsys):
    shutil.copy(scenes_file, "mine.npz")
    line = f"bench mine.npz {SMALL} --seeds 1"
    assert spml(f"{line} --out b --methods an") == 0
    arrays = dict(np.load("mine.npz"))
    arrays["labels"][0] = 1
    np.savez("mine.npz", **arrays)
    assert spml(f"{line} --out b --methods an,gr") == 2
    error = capsys.readouterr().err
    assert "other items or labels than mine.npz has now" in error
    assert error.endswith("give another --out\n")
    assert spml(f"{line} --out c --methods an") == 0


def test_a_file_named_like_a_benchmark_gets_none_of_its_options(scenes_file, here):
    shutil.copy(scenes_file, "coco@mine.npz")
    options = f"{SMALL} --methods em --set em.alpha=0.1 --seeds 1 --out b"
    assert spml(f"bench coco@mine.npz {options}") == 0
    (record,) = json.loads(Path("b/bench.json").read_text())["runs"].values()
    assert record["config"]["options"]["alpha"] == 0.1 and "pixels" not in record["config"]
    assert "quoted" not in Path("b/table.md").read_text()


@pytest.mark.parametrize("name", ["plan.json", "table.md"])
def test_a_file_that_no_bench_wrote_is_not_replaced(name, here, capsys):
    Path(name).write_text("[1]")
    assert spml("bench digits --methods an --seeds 1 --out .") == 2
    assert f"{name} exists and no bench wrote it" in capsys.readouterr().err
    assert [path.read_text() for path in here.iterdir()] == ["[1]"]


def test_a_failed_run_is_reported_and_can_be_retried(scenes_file, here, monkeypatch, capsys):
    text = "def loss(logits, observed):\n    raise OSError('not yet')\n"
    Path("mine_bench.py").write_text(text)
    monkeypatch.syspath_prepend(here)
    line = f"bench {scenes_file} {SMALL} --methods mine_bench:loss --seeds 1 --out b"
    assert spml(line) == 1
    assert "runs that failed: 1, see" in capsys.readouterr().err
    assert "not yet" in Path("b/table.md").read_text()
    assert spml(line) == 1
    sys.modules["mine_bench"].loss = lambda logits, observed: logits.square().mean()
    assert spml(f"{line} --retry") == 0


def test_a_grid_chooses_on_validation_and_trains_a_new_seed(scenes_file, here):
    grid = "--methods an --grid --rates 0.001 --seeds 1 --out b --quiet"
    assert spml(f"bench {scenes_file} {SMALL} {grid}") == 0
    runs = json.loads(Path("b/plan.json").read_text())["runs"]
    stages = [(run["stage"], run["seed"]) for run in runs]
    assert stages == [("trial", 0), ("trial", 0), ("final", 1)]


def test_the_ablation_has_all_rows(scenes_file, here, capsys):
    few = "--published --seeds 1 --out a --quiet --format md"
    assert spml(f"ablate {scenes_file} {SMALL} {few}") == 0
    shown = capsys.readouterr().out
    assert shown.count("\n| k̂") == 10 and "| AN |" in shown
    assert "− k̂ ✓, v ✓, L ✓" in shown


def test_an_ablation_row_that_the_data_do_not_allow_is_reported(scenes_file, capsys):
    from spml.cli.commands.ablate import Ablate
    from spml.data import load

    ablate = Ablate(data=str(scenes_file))
    assert len(ablate.plan(load(scenes_file, labels="complete")).cases) == 11
    assert capsys.readouterr().err == ""
    assert len(ablate.plan(load(scenes_file, labels="observed")).cases) == 10
    assert "k̂ of Eq. (kx) is left out" in capsys.readouterr().err


@pytest.mark.slow
def test_an_interrupted_bench_exits_130_and_resumes(scenes_file, tmp_path):
    long = SMALL.replace("--epochs 1", "--epochs 500")
    line = f"bench {scenes_file} {long} --methods gr --seeds 1 --out {tmp_path}/b"
    command = [sys.executable, "-m", "spml.cli", *line.split()]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(command, **pipes, text=True)
    end = time.time() + 120
    while not list((tmp_path / "b").glob("runs/*/last.ckpt")) and time.time() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130 and "run the same command to resume" in error
    assert json.loads((tmp_path / "b/plan.json").read_text())["counts"]["pending"] == 1
    assert not list((tmp_path / "b/locks").iterdir())


NAMES = ("losses", "gradients", "sensitivity", "distinguishability", "assumptions", "classes")


@pytest.mark.slow
def test_all_figures_are_drawn_in_the_short_form_and_again_from_the_runs(scenes_file, here, capsys):
    words = f"figures {scenes_file} {SMALL} --short --resamples 0 --out f".split()
    assert main(words) == 0
    assert "AN, seed 0: validation" in capsys.readouterr().err
    for name in NAMES:
        ElementTree.parse(f"f/{name}.svg")
        assert Path(f"f/{name}.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads(Path(f"f/{name}.json").read_text())["figure"] == name
    study = json.loads(Path("f/sensitivity.json").read_text())
    assert study["wanting"] == ""
    assert all(point["run"] for part in study["study"] for point in part["points"])
    before = Path("f/distinguishability.json").read_text()
    assert spml("figures --runs f --only d,e --out again") == 0
    assert Path("again/distinguishability.json").read_text() == before
    suffixes = Counter(path.suffix for path in Path("again").iterdir())
    assert suffixes == {".json": 2, ".png": 2, ".svg": 2}
    assert main([*words, "--quiet"]) == 0  # nothing is trained again
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_bench_ablate_and_figures_of_digits_share_their_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(digits.SETTINGS, "digits", digits.Scenes(sizes=(128, 48, 64), size=24))
    few = f"--epochs 1 --accelerator cpu --resamples 0 --quiet --out {tmp_path}".split()
    assert main(["bench", "digits", "--methods", "an,gr", "--seeds", "1", *few]) == 0
    assert main(["ablate", "digits", "--published", "--seeds", "1", *few]) == 0
    assert len(list((tmp_path / "records").iterdir())) == 11  # AN and GR once
    assert main(["figures", "digits", "--only", "d,e,f", *few]) == 0
    assert len(list((tmp_path / "records").iterdir())) == 11
    assert {path.stem for path in tmp_path.glob("*.svg")} == set(NAMES[3:])
    assert spml(f"bench --verify --quiet --out {tmp_path}") == 0


def test_figures_that_cannot_be_drawn_are_reported_and_the_rest_drawn(here, capsys):
    Path("runs").mkdir()
    Path("runs/bad.json").write_text("{")
    words = ["figures", "--runs", "runs", "--out", "f"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "losses.svg" in shown.out and "sensitivity is not drawn: needs runs of gr" in shown.err
    assert "classes is not drawn: needs the data" in shown.err and "left out" in shown.err
    assert main([*words, "--only", "d"]) == 1


def test_runs_are_drawn_if_the_data_cannot_be_read(here, capsys):
    Path("runs").mkdir()
    assert spml(f"figures voc --root {here} --runs runs --out f") == 0
    assert str(here) in capsys.readouterr().err and Path("f/losses.svg").exists()


def test_figures_of_losses_need_no_data(here, capsys):
    assert spml("figures --only a gradients --out f --quiet") == 0
    assert capsys.readouterr().out == "" and len(list(Path("f").iterdir())) == 6


def test_a_foreign_file_is_not_replaced_without_overwrite(tmp_path, capsys):
    (tmp_path / "losses.svg").write_text("mine")
    words = ["figures", "--only", "a", "--out", str(tmp_path)]
    assert main(words) == 2
    assert "losses.svg exists" in capsys.readouterr().err
    assert (tmp_path / "losses.svg").read_text() == "mine"
    assert main([*words, "--overwrite"]) == 0
    assert main(words) == 0  # figures drawn by this command are replaced


def test_every_method_and_seed_is_trained_in_its_folder_and_reported(here, capsys):
    line = "demo --out d --seeds 2 --epochs 1 --methods an gr --jobs 2"
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
