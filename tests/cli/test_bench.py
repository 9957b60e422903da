"""`spml bench` and `spml ablate` from the command line."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from spml.cli import main
from spml.cli.output.tables import print_results
from spml.report.results import ResultTable
from tests.conftest import spml

SMALL = "--labels complete --backbone tiny --epochs 1 --lr 0.003 --accelerator cpu"


def test_a_bench_trains_resumes_prints_and_verifies(scenes_file, tmp_path, here, capsys):
    words = (
        f"bench {scenes_file} {SMALL} --methods an,gr hill --set hill.variant=gr --seeds 1".split()
    )
    assert main([*words, "--out", "b", "--format", "md"]) == 0
    shown = capsys.readouterr()
    assert shown.out == (tmp_path / "b/table.md").read_text()
    assert "| hill |" in shown.out
    assert "− gr" in shown.out
    assert "an, seed 0: validation" in shown.err
    assert "bench.json, table.md, table.csv, table.tex, table.html" in shown.err
    assert main([*words, "--out", "b", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "seed 0" not in shown.err and "test mAP" in shown.out
    runs = json.loads((tmp_path / "b/bench.json").read_text())["runs"]
    assert {record["options"].get("variant") for record in runs.values()} == {None, "gr"}
    assert spml("bench --from b/bench.json --format csv --against an") == 0
    assert capsys.readouterr().out.startswith("row,seeds,test,")
    assert spml("bench --verify --out b") == 0
    assert capsys.readouterr().out.count("scores give") == 6
    result = next((tmp_path / "b/runs").glob("an-*/result.json"))
    result.write_text(result.read_text().replace('"test_map": ', '"test_map": 9'))
    assert spml("bench --verify --out b --quiet") == 1
    assert capsys.readouterr().out.count("DIFFERS") == 1


def test_changed_data_are_not_mixed_with_earlier_runs(scenes_file, here, capsys):
    shutil.copy(scenes_file, "mine.npz")
    words = ["bench", "mine.npz", *SMALL.split(), "--seeds", "1", "--out", "b"]
    assert main([*words, "--methods", "an"]) == 0
    arrays = dict(np.load("mine.npz"))
    arrays["labels"][0] = 1
    np.savez("mine.npz", **arrays)
    assert main([*words, "--methods", "an,gr"]) == 2
    error = capsys.readouterr().err
    assert "other items or labels than mine.npz has now" in error
    assert error.endswith("give another --out\n")
    assert main([*words[:-1], "c", "--methods", "an"]) == 0


def test_a_file_named_like_a_benchmark_gets_none_of_its_options(
    scenes_file, tmp_path, here, capsys
):
    shutil.copy(scenes_file, "coco@mine.npz")
    words = [
        *SMALL.split(),
        "--methods",
        "em",
        "--set",
        "em.alpha=0.1",
        "--seeds",
        "1",
        "--out",
        "b",
    ]
    assert main(["bench", "coco@mine.npz", *words]) == 2
    assert capsys.readouterr().err.endswith("write ./coco@mine.npz\n")
    assert main(["bench", "./coco@mine.npz", *words]) == 0
    (record,) = json.loads((tmp_path / "b/bench.json").read_text())["runs"].values()
    assert record["config"]["options"]["alpha"] == 0.1 and "pixels" not in record["config"]
    assert "quoted" not in (tmp_path / "b/table.md").read_text()


@pytest.mark.parametrize("name", ["plan.json", "table.md"])
def test_a_file_that_no_bench_wrote_is_not_replaced(name, tmp_path, here, capsys):
    (tmp_path / name).write_text("[1]")
    assert spml("bench digits --methods an --seeds 1 --out .") == 2
    assert f"{name} exists and no bench wrote it" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["[1]"]


def test_a_failed_run_is_reported_and_can_be_retried(scenes_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_bench.py").write_text(
        "def loss(logits, observed):\n    raise OSError('not yet')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = f"bench {scenes_file} {SMALL} --methods mine_bench:loss --seeds 1 --out b".split()
    assert main(words) == 1
    assert "runs that failed: 1, see" in capsys.readouterr().err
    assert "not yet" in (tmp_path / "b/table.md").read_text()
    assert main(words) == 1
    sys.modules["mine_bench"].loss = lambda logits, observed: logits.square().mean()
    assert main([*words, "--retry"]) == 0


def test_a_grid_chooses_on_validation_and_trains_a_new_seed(scenes_file, tmp_path):
    words = f"bench {scenes_file} {SMALL} --methods an --grid --rates 0.001 --seeds 1".split()
    assert main([*words, "--out", str(tmp_path / "b"), "--quiet"]) == 0
    plan = json.loads((tmp_path / "b/plan.json").read_text())
    assert [(run["stage"], run["seed"]) for run in plan["runs"]] == [
        ("trial", 0),
        ("trial", 0),
        ("final", 1),
    ]


def test_the_ablation_has_all_rows(scenes_file, tmp_path, capsys):
    words = f"ablate {scenes_file} {SMALL} --published --seeds 1 --out {tmp_path}/a --quiet".split()
    assert main([*words, "--format", "md"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("\n| k̂") == 10 and "| AN |" in shown
    assert "− k̂ ✓, v ✓, L ✓" in shown


def test_an_ablation_row_that_the_data_do_not_allow_is_reported(scenes_file, capsys):
    from spml.cli.commands.ablate import Ablate
    from spml.data import load

    for labels, rows, message in (
        ("complete", 11, ""),
        ("observed", 10, "k̂ of Eq. (kx) is left out"),
    ):
        assert (
            len(Ablate(data=str(scenes_file)).plan(load(str(scenes_file), labels=labels)).cases)
            == rows
        )
        assert message in (error := capsys.readouterr().err) and bool(error) == bool(message)


def test_a_title_longer_than_its_table_stays_on_one_line(capsys):
    print_results(
        ResultTable(
            "bench, photos[new].csv: test mAP in percent",
            ["method", "seeds"],
            [["an", "1"]],
            ["a note"],
        )
    )
    assert (
        capsys.readouterr().out.splitlines()[0].rstrip()
        == "bench, photos[new].csv: test mAP in percent"
    )


@pytest.mark.slow
def test_an_interrupted_bench_exits_130_and_resumes(scenes_file, tmp_path):
    words = [
        "bench",
        scenes_file,
        *SMALL.split()[:4],
        *shlex.split("--epochs 500 --lr 0.003 --methods gr --seeds 1"),
    ]
    command = [
        sys.executable,
        "-m",
        "spml.cli",
        *map(str, words),
        *f"--accelerator cpu --out {tmp_path}/b".split(),
    ]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    end = time.time() + 120
    while not list((tmp_path / "b").glob("runs/*/last.ckpt")) and time.time() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130 and "run the same command to resume" in error
    assert json.loads((tmp_path / "b/plan.json").read_text())["counts"]["pending"] == 1
    assert not list((tmp_path / "b/locks").iterdir())
