import json
import shlex
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from spml.cli import main
from spml.losses import names

COMMANDS = [
    "demo",
    "prepare",
    "check",
    "stats",
    "train",
    "eval",
    "predict",
    "explain",
    "export",
    "report",
    "bench",
    "ablate",
]


def spml(*words, **more):
    return subprocess.run(
        [sys.executable, "-m", "spml.cli", *map(str, words)], capture_output=True, text=True, **more
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Example: spml {command}" in shown


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from spml.cli import main; "
        "main(['train', '--help']); main(['bench', '--help']); "
        "heavy = {'torch', 'numpy', 'timm', 'lightning', 'matplotlib', 'sklearn'}; "
        "heavy &= set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_train_eval_predict_report_as_a_user_would(
    scenes_file, pictures, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    small = [
        "--backbone",
        "tiny",
        "--epochs",
        "1",
        "--batch-size",
        "16",
        "--lr",
        "0.003",
        "--accelerator",
        "cpu",
    ]
    run = [
        "train",
        str(scenes_file),
        "--labels",
        "complete",
        "--set",
        "q3=1.5",
        "--set",
        "w=0,10",
        *small,
    ]
    assert main([*run, "--out", "runs/a"]) == 0
    result = json.loads((tmp_path / "runs/a/result.json").read_text())
    assert result["options"]["q3"] == 1.5 and result["options"]["w"] == [0, 10]
    assert (tmp_path / "runs/a/report.html").stat().st_size > 10_000
    assert main(["eval", "runs/a", "--split", "val"]) == 0
    assert json.loads((tmp_path / "runs/a/eval-val.json").read_text())["labels"] == "complete"
    assert main(["predict", "runs/a", str(pictures), "--out", "tags.csv"]) == 0
    assert len((tmp_path / "tags.csv").read_text().splitlines()) == 13
    assert main(["predict", "runs/a", str(pictures), "--out", "tags.csv"]) == 2
    assert "already there" in capsys.readouterr().err
    assert main(["report", "runs/a", "--out", "page.html", "--title", "Mine"]) == 0
    assert "<title>Mine" in (tmp_path / "page.html").read_text()
    assert main([*run, "--out", "runs/a"]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main([*run, "--out", "runs/a", "--resume"]) == 0
    command = json.loads((tmp_path / "runs/a/config.json").read_text())["command"]
    words = shlex.split(command)
    assert words[:3] == ["spml", "train", str(scenes_file)]
    assert main([*words[1:], "--overwrite", "--quiet"]) == 0
    again = json.loads((tmp_path / "runs/a/result.json").read_text())
    assert {**again, "seconds": 0, "images_per_second": 0} == {
        **result,
        "seconds": 0,
        "images_per_second": 0,
    }


def test_user_pictures_train_from_a_csv(pictures, tmp_path):
    words = [
        "--backbone",
        "tiny",
        "--size",
        "16",
        "--epochs",
        "2",
        "--accelerator",
        "cpu",
        "--quiet",
    ]
    assert (
        main(["train", str(pictures), "--out", str(tmp_path / "run"), "--lr", "0.001", *words]) == 0
    )
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["selection"] == "observed" and result["data"] == str(pictures)


def test_a_recorded_command_with_a_removed_flag_still_trains_and_resumes(
    pictures, tmp_path, capsys
):
    run = str(tmp_path / "run")
    sizes = ["--backbone", "tiny", "--size", "16", "--epochs", "1", "--lr", "0.001"]
    command = ["train", str(pictures), "--out", run, *sizes, "--quiet", "--no-fused-norm"]
    for more in ([], ["--resume"]):
        assert main([*command, *more]) == 0
        assert "spml: --no-fused-norm has no effect any more" in capsys.readouterr().err
    file = tmp_path / "run/config.json"
    config = json.loads(file.read_text())
    assert "fused" not in config["command"]
    old = {**config, "fused_norm": False, "command": f"{config['command']} --no-fused-norm"}
    file.write_text(json.dumps(old))
    assert main([*command, "--resume"]) == 0 and main(["report", run]) == 0


BAD = {
    "no such data": (["train", "nowhere.csv"], "nowhere.csv"),
    "near data name": (["train", "digitz"], "digits"),
    "unknown method": (["train", "digits", "--method", "gg"], "no method 'gg'"),
    "unknown option": (["train", "digits", "--set", "q4=1"], "no option 'q4'"),
    "option without value": (["train", "digits", "--set", "q3"], "NAME=VALUE"),
    "text for a number": (["train", "digits", "--set", "q3=high"], "'high' is not a number"),
    "text for a plain number": (
        ["train", "digits", "--set", "eps=abc"],
        "eps is one of a number, none, not 'abc'",
    ),
    "too few per class": (
        ["train", "digits", "--set", "w=1,2,3"],
        "cannot be used with these options on 10 classes",
    ),
    "no reduction": (
        ["train", "digits", "--method", "an", "--set", "reduction=none"],
        "no single number",
    ),
    "an array on the command line": (
        ["train", "digits", "--method", "role", "--set", "estimated=3"],
        "only available in Python code",
    ),
    "features there": (
        ["train", "digits", "--method", "smile", "--set", "x=near"],
        "only available in Python code",
    ),
    "not a loss": (["train", "digits", "--method", "os:getcwd"], "makes a str, not a loss"),
    "no GPU": (["train", "digits", "--accelerator", "cuda"], "--accelerator cuda"),
    "a size the backbone cannot take": (
        ["train", "digits", "--backbone", "vit_tiny_patch16_224", "--weights", "none"],
        "vit_tiny_patch16_224 cannot take pictures of 40 px",
    ),
    "unknown command": (["trian", "--help"], "no command 'trian'; 'train'?"),
    "a file as run folder": (
        ["train", "digits", "--epochs", "1", "--out", __file__],
        "is a file, not a folder",
    ),
    "bad epochs": (["train", "digits", "--epochs", "0"], "epochs must be above 0"),
    "both resume and overwrite": (
        ["train", "digits", "--resume", "--overwrite"],
        "give one of them",
    ),
    "unknown backbone": (["train", "digits", "--backbone", "resnet5"], "no backbone 'resnet5'"),
    "unreachable weights": (
        ["train", "digits", "--backbone", "resnet18", "--weights", "pretrained"],
        "--weights",
    ),
    "needs root": (["train", "voc"], "--root"),
    "no run to evaluate": (["eval", "nowhere"], "nowhere"),
    "no model": (["predict", "nowhere", "a.jpg"], "no model here"),
    "no runs": (["report"], "no run folder"),
    "not a run": (["report", "nowhere"], "nowhere"),
}


@pytest.mark.parametrize("words,message", BAD.values(), ids=BAD)
def test_a_user_error_is_one_line_with_exit_code_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_unknown_flags_exit_2_without_traceback(capsys):
    assert main(["train", "digits", "--epoch", "3"]) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err + shown.out and "--epochs" in shown.err + shown.out


@pytest.mark.parametrize("name", names())
def test_set_help_lists_a_methods_options(name, capsys):
    assert main(["train", "digits", "--method", name, "--set", "help"]) == 0
    assert name in capsys.readouterr().out


def test_interruption_exits_130_and_names_the_command_to_resume(scenes_file, tmp_path):
    out = tmp_path / "run"
    words = [
        "train",
        scenes_file,
        "--labels",
        "complete",
        "--backbone",
        "tiny",
        "--epochs",
        "500",
        "--out",
        out,
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "spml.cli", *map(str, words)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (out / "last.ckpt").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.terminate()
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "resume with: spml train" in error and "--resume" in error and "Traceback" not in error


def test_demo_compares_methods_over_seeds(tmp_path, capsys):
    words = ["--out", str(tmp_path / "d"), "--seeds", "2", "--epochs", "1", "--methods", "an", "gr"]
    assert main(["demo", *words]) == 0
    shown = capsys.readouterr().out
    assert "±" in shown and "report.html" in shown
    assert (tmp_path / "d" / "report.html").exists()
    assert np.isfinite(
        json.loads((tmp_path / "d" / "gr-1" / "result.json").read_text())["test_map"]
    )


def test_the_program_runs_as_a_module():
    done = spml("train", "nowhere.csv")
    assert done.returncode == 2 and done.stderr.startswith("spml: nowhere.csv")
    words = [sys.executable, "-m", "spml", "train", "nowhere.csv"]
    again = subprocess.run(words, capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (done.returncode, done.stderr)


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"spml {version('spml')}\n"


def test_validation_and_test_rows_may_be_in_separate_files(pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(pictures.parent)
    header, *rows = [line.rpartition(",")[0] for line in pictures.read_text().splitlines()]
    for name, part in {"train": rows[:8], "val": rows[8:10], "test": rows[10:]}.items():
        (pictures.parent / f"{name}.csv").write_text("\n".join([header, *part]) + "\n")
    words = [
        "--backbone",
        "tiny",
        "--size",
        "16",
        "--epochs",
        "1",
        "--accelerator",
        "cpu",
        "--quiet",
    ]
    assert (
        main(
            ["train", "train.csv", "--val", "val.csv", "--test", "test.csv", "--out", "run", *words]
        )
        == 0
    )
    assert main(["eval", "run"]) == 0
    assert json.loads((pictures.parent / "run/eval-test.json").read_text())["items"] == 2


def test_a_run_resumes_after_its_class_folders_were_moved(pictures, tmp_path, monkeypatch, capsys):
    for place in ("train/red", "train/blue", "val/red", "test/blue"):
        shutil.copytree(pictures.parent / "photos", tmp_path / "here" / place)
    words = [
        "train",
        "train",
        "--val",
        "val",
        "--test",
        "test",
        "--backbone",
        "tiny",
        "--size",
        "16",
        "--epochs",
        "1",
    ]
    monkeypatch.chdir(tmp_path / "here")
    assert main([*words, "--out", "run", "--quiet"]) == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").rename("there")
    monkeypatch.chdir(tmp_path / "there")
    Path("run/result.json").unlink()  # like a stopped run
    assert main([*words, "--out", "run", "--quiet", "--resume"]) == 0
    few = (
        "spml: no estimates of mAP, precision and recall: "
        "12 items have a positive, and a range needs 20 at least\n"
    )
    assert main(["eval", "run", "--split", "val"]) == 0 and capsys.readouterr().err == few


def test_a_custom_method_in_the_current_folder_is_found(tmp_path, scenes_file):
    (tmp_path / "mine.py").write_text(
        "def loss(logits, observed):\n    return (logits * logits).mean()\n"
    )
    words = [
        "train",
        str(scenes_file),
        "--backbone",
        "tiny",
        "--epochs",
        "1",
        "--quiet",
        "--method",
        "mine:loss",
    ]
    # as the installed program starts
    bare = "import sys; sys.path[:] = [path for path in sys.path if path]"
    code = f"{bare}; sys.argv = {['spml', *words]!r}; from spml.cli import entry; entry()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_removed_working_folder_gives_an_error_and_no_traceback(tmp_path):
    code = (
        "import os, shutil, sys; shutil.rmtree(os.getcwd()); "
        "sys.argv = ['spml', 'train', 'x.csv']; from spml.cli import entry; entry()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "spml: the current folder was removed; change to another\n",
    )


def test_an_unexpected_error_is_one_line_too(monkeypatch, capsys):
    from spml.cli.commands.report import Report

    def broken(self):
        raise KeyError("surprise")

    monkeypatch.setattr(Report, "run", broken)
    assert main(["report", "x"]) == 1
    error = capsys.readouterr().err
    assert "unexpected KeyError" in error and error.count("\n") == 1
