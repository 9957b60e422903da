"""Every command that reads a run, on missing, incomplete and damaged run folders."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from spml.cli import main

COMMANDS = {
    "eval": [],
    "calibrate": [],
    "report": [],
    "predict": ["a.png", "--out", "tags.csv"],
    "explain": ["a.png", "--out", "maps"],
    "review": ["--out", "review"],
    "export": ["--out", "model.onnx"],
    "serve": ["--port", "0"],
}
EXTRAS = {"serve": "starlette", "export": "onnxscript"}  # packages that these commands need
MODEL = tuple(name for name in COMMANDS if name != "report")  # commands that read the model
RECORDS = ("eval", "calibrate", "report", "review")  # commands that read the run's records


def keep(run, *names):
    for path in run.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def cut(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def edit(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def to_file(run):
    shutil.rmtree(run)
    run.write_text("no folder")


def to_loop(run):
    shutil.rmtree(run)
    run.symlink_to(run.name)


def without(run, name):
    path = run / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    # the data, from which the command could rebuild what is missing, are absent too
    edit(run / "config.json", lambda config: config.update(data="gone.npz"))


# by name: the damage, the commands that fail, the file they name, and the remedy they print
BAD = {
    "no folder": (shutil.rmtree, COMMANDS, "run", "give the folder"),
    "empty folder": (keep, COMMANDS, "run", "give the folder"),
    "a file": (to_file, COMMANDS, "run", "give the folder"),
    "a loop of links": (to_loop, COMMANDS, "run", "give the folder"),
    "killed before the first epoch": (
        lambda run: keep(run, "config.json"),
        COMMANDS,
        "run",
        "give|train",
    ),
    "no best": (lambda run: shutil.rmtree(run / "best"), MODEL, "run", "give the folder"),
    "half a model.json": (
        lambda run: cut(run / "best/model.json"),
        MODEL,
        "best/model.json",
        "put the file back",
    ),
    "no table in model.json": (
        lambda run: (run / "best/model.json").write_text("[1]"),
        MODEL,
        "best/model.json",
        "put the file back",
    ),
    "a newer model": (
        lambda run: edit(run / "best/model.json", lambda info: info.update(format=99)),
        MODEL,
        "best/model.json",
        "update spml",
    ),
    "format as text": (
        lambda run: edit(run / "best/model.json", lambda info: info.update(format="new")),
        MODEL,
        "best/model.json",
        "put the file back",
    ),
    "an unknown backbone": (
        lambda run: edit(run / "best/model.json", lambda info: info.update(backbone="nonesuch")),
        tuple(name for name in MODEL if name != "calibrate"),
        "best/model.json",
        "Give tiny, linear or a timm model",
    ),
    "half of the weights": (
        lambda run: cut(run / "best/model.safetensors"),
        MODEL,
        "best/model.safetensors",
        "put the file back",
    ),
    "no weights": (
        lambda run: (run / "best/model.safetensors").unlink(),
        MODEL,
        "best/model.safetensors",
        "put the file back",
    ),
    "a class short": (
        lambda run: edit(run / "best/model.json", lambda info: info["classes"].pop()),
        MODEL,
        "best/model.json",
        "put the file back",
    ),
    "a class and its threshold short": (
        lambda run: edit(
            run / "best/model.json", lambda info: (info["classes"].pop(), info["thresholds"].pop())
        ),
        tuple(name for name in MODEL if name != "calibrate"),
        "best/model.safetensors",
        "put the file back",
    ),
    "no JSON in config.json": (
        lambda run: (run / "config.json").write_text('{"data": '),
        RECORDS,
        "config.json",
        "put the file back",
    ),
    "an empty config.json": (
        lambda run: (run / "config.json").write_text("{}"),
        ("eval", "calibrate", "review"),
        "config.json",
        "put the file back",
    ),
    "no config.json": (
        lambda run: (run / "config.json").unlink(),
        RECORDS,
        "config.json",
        "give the folder",
    ),
    "config.json as a pipe": (
        lambda run: ((run / "config.json").unlink(), os.mkfifo(run / "config.json")),
        RECORDS,
        "config.json",
        "give the folder",
    ),
    "no observed.npz, no data": (
        lambda run: without(run, "observed.npz"),
        ("eval", "calibrate", "review"),
        "gone.npz",
        "in the folder where",
    ),
    "no scores, no data": (
        lambda run: without(run, "scores"),
        ("eval", "calibrate", "review"),
        "gone.npz",
        "in the folder where",
    ),
    "half of observed.npz": (
        lambda run: cut(run / "observed.npz"),
        ("calibrate", "report"),
        "observed.npz",
        "move it away|put the file",
    ),
    "half of a result": (
        lambda run: cut(run / "result.json"),
        RECORDS,
        "result.json",
        "put the file back",
    ),
    "half a calibration.json": (
        lambda run: (run / "calibration.json").write_text("{"),
        ("report",),
        "calibration.json",
        "calibrate again",
    ),
    "no result.json": (
        lambda run: (run / "result.json").unlink(),
        ("eval", "calibrate", "review"),
        "result.json",
        "--resume",
    ),
}
CASES = [(name, command) for name, (_, commands, _, _) in BAD.items() for command in commands]


def files(folder):
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(
    "name,command", CASES, ids=[f"{command}-{name}" for name, command in CASES]
)
def test_a_damaged_run_gives_a_one_line_error_and_is_not_changed(
    name, command, finished, tmp_path, monkeypatch, capsys
):
    if command in EXTRAS:
        pytest.importorskip(EXTRAS[command])
    spoil, _, named, remedy = BAD[name]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "run")
    Image.new("RGB", (24, 24)).save("a.png")
    spoil(tmp_path / "run")
    before = files(tmp_path)
    assert main([command, "run", *COMMANDS[command]]) == 2
    error = capsys.readouterr().err
    assert error.startswith("spml: ") and error.count("\n") == 1 and "unexpected" not in error
    assert named in error and any(word in error for word in remedy.split("|")), error
    assert files(tmp_path) == before


def test_a_model_works_without_its_run_and_an_unfinished_run_is_reported(
    finished, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (24, 24)).save("a.png")
    shutil.copytree(finished, "run")
    keep(tmp_path / "run", "config.json", "best")
    assert main(["predict", "run", "a.png", "--out", "a.csv"]) == 0
    assert "run is not finished" in capsys.readouterr().err
    keep(tmp_path / "run", "best")
    assert main(["predict", "run", "a.png", "--out", "b.csv"]) == 0
    assert capsys.readouterr().err == ""
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_file_name_with_a_newline_is_escaped_in_the_error(
    finished, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two\nlines\x1b[31m.jpg").write_text("no picture")
    Image.new("RGB", (24, 24)).save("a.png")
    assert main(["predict", str(finished), ".", "--out", "tags.csv"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 2 and r"two\nlines\x1b[31m.jpg" in error and "1 of 2" in error


PIPES = {
    "train": ["train", "p.csv", "--epochs", "1"],
    "train, arrays": ["train", "p.npz", "--epochs", "1"],
    "train, Parquet": ["train", "p.parquet", "--epochs", "1"],
    "check": ["check", "p.csv"],
    "stats": ["stats", "p.csv"],
    "class list": ["train", "p.csv", "--classes", "p.txt"],
    "predict": ["predict", "RUN", "p.csv"],
    "predict, a picture": ["predict", "RUN", "p.jpg"],
    "thresholds": ["predict", "RUN", "a.png", "--threshold", "p.json"],
    "answers": ["review", "RUN", "--answers", "p.csv"],
}


@pytest.mark.parametrize("arguments", PIPES.values(), ids=PIPES)
def test_a_pipe_without_a_writer_is_refused_at_once(
    arguments, finished, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for suffix in ("csv", "npz", "parquet", "txt", "json", "jpg"):
        os.mkfifo(f"p.{suffix}")
    Image.new("RGB", (24, 24)).save("a.png")
    assert main([str(finished) if text == "RUN" else text for text in arguments]) == 2
    error = capsys.readouterr().err
    assert "a pipe, not a file" in error or "no ordinary file" in error
    assert not list(tmp_path.glob("*.csv.*")) and not (tmp_path / "predictions.csv").exists()


def test_eval_reports_data_that_changed_since_training(pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [
        "--backbone",
        "tiny",
        "--size",
        "16",
        "--epochs",
        "1",
        "--accelerator",
        "cpu",
        "--quiet",
        "--out",
        "run",
    ]
    assert main(["train", str(pictures), *options]) == 0
    assert main(["eval", "run", "--split", "val"]) == 0 and main(["eval", "run"]) == 0
    few = (
        "spml: no estimates of mAP, precision and recall: "
        "2 items have a positive, and a range needs 20 at least\n"
    )
    assert capsys.readouterr().err == few * 2
    before = (tmp_path / "run/eval-val.json").read_bytes()
    pictures.write_text(pictures.read_text().replace("photos/0.jpg,red", "photos/0.jpg,blue"))
    assert main(["eval", "run", "--split", "val"]) == 2
    assert "other rows or labels than the run was trained with" in capsys.readouterr().err
    assert (tmp_path / "run/eval-val.json").read_bytes() == before
    assert main(["eval", "run", "--split", "test"]) == 0
    assert "other rows or labels" in capsys.readouterr().err
    assert json.loads((tmp_path / "run/eval-test.json").read_text())["data_changed"] is True


def test_review_and_explain_report_data_that_changed_since_training(
    pictures, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    options = [
        "--backbone",
        "tiny",
        "--size",
        "16",
        "--epochs",
        "1",
        "--accelerator",
        "cpu",
        "--quiet",
        "--out",
        "run",
    ]
    assert main(["train", "photos.csv", *options]) == 0
    Path("answers.csv").write_text("image,class,answer\nphotos/1.png,red,1\n")
    commands = {
        "review": ["review", "run", "--out"],
        "answers.csv": ["review", "run", "--answers", "answers.csv", "--out"],
        "worst": ["explain", "run", "--worst", "2", "--out"],
        "worst of val": ["explain", "run", "--worst", "2", "--split", "val", "--out"],
    }
    capsys.readouterr()
    for name, command in commands.items():
        assert main([*command, f"{name} before.csv"]) == 0
        assert capsys.readouterr().err == ""
    head, first, second, *rest = pictures.read_text().splitlines()
    pictures.write_text("\n".join([head, second, first, *rest]))
    for name, command in commands.items():
        assert main([*command, f"{name} after.csv"]) == 0
        message = "spml: photos.csv has other rows or labels than the run was trained with\n"
        assert capsys.readouterr().err == message and Path(f"{name} after.csv").exists()


def test_a_closed_output_pipe_is_not_an_error(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    command = [sys.executable, "-m", "spml.cli", "eval", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == 141
