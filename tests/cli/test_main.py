import json
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from spml.cli import main
from spml.losses import names
from tests.conftest import TINY, outcome, spml


def test_train_eval_predict_report_as_a_user_would(scenes_file, pictures, here, capsys):
    small = "--method gr --backbone tiny --epochs 1 --batch-size 16 --lr 0.003 --accelerator cpu"
    small += " --out runs/a"
    line = f"train {scenes_file} --labels complete --set q3=1.5 --set w=0,10 {small}"
    assert spml(line) == 0
    result = outcome(Path("runs/a"))
    assert result["options"]["q3"] == 1.5 and result["options"]["w"] == [0, 10]
    assert Path("runs/a/report.html").stat().st_size > 10_000
    assert spml("eval runs/a --split val") == 0
    assert json.loads(Path("runs/a/eval-val.json").read_text())["labels"] == "complete"
    assert spml(f"predict runs/a {pictures} --out tags.csv") == 0
    assert len(Path("tags.csv").read_text().splitlines()) == 13
    assert spml(f"predict runs/a {pictures} --out tags.csv") == 2
    assert "already there" in capsys.readouterr().err
    assert spml("report runs/a --out page.html --title Mine") == 0
    assert "<title>Mine" in Path("page.html").read_text()
    assert spml(line) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main([*line.split(), "--resume"]) == 0
    words = shlex.split(json.loads(Path("runs/a/config.json").read_text())["command"])
    assert words[:3] == ["spml", "train", str(scenes_file)]
    assert main([*words[1:], "--overwrite", "--quiet"]) == 0
    assert outcome(Path("runs/a")) == result


def test_a_recorded_command_with_a_removed_flag_still_trains_and_resumes(pictures, here, capsys):
    sizes = "--method gr --backbone tiny --size 16 --epochs 1 --lr 0.001"
    command = f"train {pictures} --out run {sizes} --quiet --no-fused-norm"
    for more in ("", " --resume"):
        assert spml(command + more) == 0
        assert "spml: --no-fused-norm has no effect any more" in capsys.readouterr().err
    file = here / "run/config.json"
    config = json.loads(file.read_text())
    assert "fused" not in config["command"]
    old = {**config, "fused_norm": False, "command": f"{config['command']} --no-fused-norm"}
    file.write_text(json.dumps(old))
    assert spml(f"{command} --resume") == 0
    assert spml("report run") == 0


@pytest.mark.parametrize(("flag", "frozen"), [("--frozen-norm", True), ("--no-frozen-norm", False)])
def test_a_switch_that_takes_a_value_now_works_without_one(pictures, here, flag, frozen):
    small = "--method an --backbone tiny --size 16 --epochs 1 --lr 0.001"
    assert spml(f"train {pictures} {flag} {small} --out run --quiet") == 0
    assert json.loads((here / "run/config.json").read_text())["frozen_norm"] is frozen


@pytest.mark.parametrize("name", names())
def test_set_help_lists_a_methods_options(name, capsys):
    assert main(["train", "digits", "--method", name, "--set", "help"]) == 0
    assert name in capsys.readouterr().out


def test_the_program_runs_as_a_module():
    for module in ("spml", "spml.cli"):
        words = [sys.executable, "-m", module, "train", "nowhere.csv"]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.startswith("spml: nowhere.csv")


def test_the_version_is_printed(capsys):
    assert spml("--version") == 0 and capsys.readouterr().out == f"spml {version('spml')}\n"


def test_validation_and_test_rows_may_be_in_separate_files(pictures, here):
    header, *rows = [line.rpartition(",")[0] for line in pictures.read_text().splitlines()]
    for name, part in {"train": rows[:8], "val": rows[8:10], "test": rows[10:]}.items():
        Path(f"{name}.csv").write_text("\n".join([header, *part]) + "\n")
    line = f"train train.csv --val val.csv --test test.csv {TINY} --out run"
    assert spml(line) == 0
    assert spml("eval run") == 0
    assert json.loads(Path("run/eval-test.json").read_text())["items"] == 2


def test_a_run_resumes_after_its_class_folders_were_moved(pictures, tmp_path, monkeypatch, capsys):
    for place in ("train/red", "train/blue", "val/red", "test/blue"):
        shutil.copytree(pictures.parent / "photos", tmp_path / "here" / place)
    words = f"train train --val val --test test {TINY} --out run".split()
    monkeypatch.chdir(tmp_path / "here")
    assert main(words) == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").rename("there")
    monkeypatch.chdir(tmp_path / "there")
    Path("run/result.json").unlink()  # like a stopped run
    assert main([*words, "--resume"]) == 0
    few = (
        "spml: no estimates of mAP, precision and recall: "
        "12 items have a positive, and a range needs 20 at least\n"
    )
    assert spml("eval run --split val") == 0 and capsys.readouterr().err == few


def program(code, folder):
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)


def test_a_custom_method_in_the_current_folder_is_found(tmp_path, scenes_file):
    text = "def loss(logits, observed):\n    return (logits * logits).mean()\n"
    (tmp_path / "mine.py").write_text(text)
    line = f"train {scenes_file} --backbone tiny --epochs 1 --quiet --method mine:loss"
    # as the installed program starts
    bare = "import sys; sys.path[:] = [path for path in sys.path if path]"
    code = f"{bare}; sys.argv = {['spml', *line.split()]!r}; from spml.cli import entry; entry()"
    done = program(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_removed_working_folder_gives_an_error_and_no_traceback(tmp_path):
    code = (
        "import os, shutil, sys; shutil.rmtree(os.getcwd()); "
        "sys.argv = ['spml', 'train', 'x.csv']; from spml.cli import entry; entry()"
    )
    done = program(code, tmp_path)
    assert done.returncode == 2
    assert done.stderr == "spml: the current folder was removed; change to another\n"


def test_an_unexpected_error_is_one_line_too(monkeypatch, capsys):
    from spml.cli.commands.report import Report

    def broken(self):
        raise KeyError("surprise")

    monkeypatch.setattr(Report, "run", broken)
    assert spml("report x") == 1
    error = capsys.readouterr().err
    assert "unexpected KeyError" in error and error.count("\n") == 1
