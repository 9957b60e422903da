"""`spml bench` and `spml ablate` from the command line."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from spml.cli.output.tables import print_results
from spml.report.groups import ResultTable
from tests.conftest import spml

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
    assert spml("bench --from b/bench.json --format csv --against an") == 0
    assert capsys.readouterr().out.startswith("row,seeds,test,")
    assert spml("bench --verify --out b") == 0
    assert capsys.readouterr().out.count("scores give") == 6
    result = next(Path("b/runs").glob("an-*/result.json"))
    result.write_text(result.read_text().replace('"test_map": ', '"test_map": 9'))
    assert spml("bench --verify --out b --quiet") == 1
    assert capsys.readouterr().out.count("DIFFERS") == 1


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


def test_a_file_named_like_a_benchmark_gets_none_of_its_options(scenes_file, here, capsys):
    shutil.copy(scenes_file, "coco@mine.npz")
    options = f"{SMALL} --methods em --set em.alpha=0.1 --seeds 1 --out b"
    assert spml(f"bench coco@mine.npz {options}") == 2
    assert capsys.readouterr().err.endswith("write ./coco@mine.npz\n")
    assert spml(f"bench ./coco@mine.npz {options}") == 0
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


def test_a_title_longer_than_its_table_stays_on_one_line(capsys):
    title = "bench, photos[new].csv: test mAP in percent"
    print_results(ResultTable(title, ["method", "seeds"], [["an", "1"]], ["a note"]))
    assert capsys.readouterr().out.splitlines()[0].rstrip() == title


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
