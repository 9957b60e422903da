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
from tests.conftest import TINY, contents, remove, spml

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
            remove(path)


def cut(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def edit(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def nest(path, depth):
    path.write_text('{"data": ' + "[" * depth + "]" * depth + "}")


def to_file(run):
    shutil.rmtree(run)
    run.write_text("no folder")


def to_loop(run):
    shutil.rmtree(run)
    run.symlink_to(run.name)


def without(run, name):
    path = run / name
    remove(path)
    # the data, from which the command could rebuild what is missing, are absent too
    edit(run / "config.json", lambda config: config.update(data="gone.npz"))


def lose_class(info):
    info["classes"].pop()
    info["thresholds"].pop()


def to_pipe(path):
    path.unlink()
    os.mkfifo(path)


def described(**values):
    """Damage that changes entries of model.json."""
    return lambda run: edit(run / INFO, lambda info: info.update(values))


INFO, TENSORS = "best/model.json", "best/model.safetensors"
CONFIG, RESULT = "config.json", "result.json"
GONE = "gone.npz", "in the folder where"
BUILT = tuple(name for name in MODEL if name != "calibrate")  # commands that build the model
FITTED = ("eval", "calibrate", "review")
FOLDER, PUT = "give the folder", "put the file back"
# by name: the damage, the commands that fail, the file they name, and the remedy they print
BAD = {
    "no folder": (shutil.rmtree, COMMANDS, "run", FOLDER),
    "empty folder": (keep, COMMANDS, "run", FOLDER),
    "a file": (to_file, COMMANDS, "run", FOLDER),
    "a loop of links": (to_loop, COMMANDS, "run", FOLDER),
    "killed before an epoch": (lambda run: keep(run, CONFIG), COMMANDS, "run", "give|train"),
    "no best": (lambda run: shutil.rmtree(run / "best"), MODEL, "run", FOLDER),
    "a nested config.json": (lambda run: nest(run / CONFIG, 10**5), RECORDS, CONFIG, PUT),
    "a config.json that nests less": (lambda run: nest(run / CONFIG, 900), RECORDS, CONFIG, PUT),
    "a nested model.json": (lambda run: nest(run / INFO, 10**5), MODEL, INFO, PUT),
    "a head that is no name": (described(head=0), MODEL, INFO, PUT),
    "half of a character": (described(classes=["\ud800", *"abc"]), MODEL, INFO, PUT),
    "half a model.json": (lambda run: cut(run / INFO), MODEL, INFO, PUT),
    "no table in model.json": (lambda run: (run / INFO).write_text("[1]"), MODEL, INFO, PUT),
    "a newer model": (described(format=99), MODEL, INFO, "update spml"),
    "format as text": (described(format="new"), MODEL, INFO, PUT),
    "an unknown backbone": (described(backbone="no"), BUILT, INFO, "Give tiny, linear or a timm"),
    "half of the weights": (lambda run: cut(run / TENSORS), MODEL, TENSORS, PUT),
    "no weights": (lambda run: (run / TENSORS).unlink(), MODEL, TENSORS, PUT),
    "a class short": (lambda run: edit(run / INFO, lambda i: i["classes"].pop()), MODEL, INFO, PUT),
    "a class and threshold short": (lambda run: edit(run / INFO, lose_class), BUILT, TENSORS, PUT),
    "no JSON": (lambda run: (run / CONFIG).write_text('{"data": '), RECORDS, CONFIG, PUT),
    "an empty config.json": (lambda run: (run / CONFIG).write_text("{}"), FITTED, CONFIG, PUT),
    "no config.json": (lambda run: (run / CONFIG).unlink(), RECORDS, CONFIG, FOLDER),
    "config.json as a pipe": (lambda run: to_pipe(run / CONFIG), RECORDS, CONFIG, FOLDER),
    "no observed.npz, no data": (lambda run: without(run, "observed.npz"), FITTED, *GONE),
    "no scores, no data": (lambda run: without(run, "scores"), FITTED, *GONE),
    "half of observed.npz": (
        lambda run: cut(run / "observed.npz"),
        ("calibrate", "report"),
        "observed.npz",
        "move it away|put the file",
    ),
    "half of a result": (lambda run: cut(run / RESULT), RECORDS, RESULT, PUT),
    "half a calibration.json": (
        lambda run: (run / "calibration.json").write_text("{"),
        ("report",),
        "calibration.json",
        "calibrate again",
    ),
    "no result.json": (lambda run: (run / RESULT).unlink(), FITTED, RESULT, "--resume"),
}
CASES = [(name, command) for name, (_, commands, _, _) in BAD.items() for command in commands]


@pytest.fixture
def picture(here):
    Image.new("RGB", (24, 24)).save("a.png")
    return here


@pytest.mark.parametrize(
    "name,command", CASES, ids=[f"{command}-{name}" for name, command in CASES]
)
def test_a_damaged_run_gives_a_one_line_error_and_is_not_changed(
    name, command, run, picture, capsys
):
    if command in EXTRAS:
        pytest.importorskip(EXTRAS[command])
    spoil, _, named, remedy = BAD[name]
    spoil(run)
    before = contents(picture, without=())
    assert main([command, "run", *COMMANDS[command]]) == 2
    error = capsys.readouterr().err
    assert error.startswith("spml: ") and error.count("\n") == 1 and "unexpected" not in error
    assert named in error and any(word in error for word in remedy.split("|")), error
    assert contents(picture, without=()) == before


def test_a_model_works_without_its_run_and_an_unfinished_run_is_reported(run, picture, capsys):
    keep(run, "config.json", "best")
    assert spml("predict run a.png --out a.csv") == 0
    assert "run is not finished" in capsys.readouterr().err
    keep(run, "best")
    assert spml("predict run a.png --out b.csv") == 0
    assert capsys.readouterr().err == ""
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_a_file_name_with_a_newline_is_escaped_in_the_error(finished, picture, capsys):
    Path("two\nlines\x1b[31m.jpg").write_text("no picture")
    assert spml(f"predict {finished} . --out tags.csv") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 2 and r"two\nlines\x1b[31m.jpg" in error and "1 of 2" in error


PIPES = {
    "train": "train p.csv --epochs 1",
    "train, arrays": "train p.npz --epochs 1",
    "train, Parquet": "train p.parquet --epochs 1",
    "check": "check p.csv",
    "stats": "stats p.csv",
    "class list": "train p.csv --classes p.txt",
    "predict": "predict RUN p.csv",
    "predict, a picture": "predict RUN p.jpg",
    "thresholds": "predict RUN a.png --threshold p.json",
    "answers": "review RUN --answers p.csv",
}


@pytest.mark.parametrize("command", PIPES.values(), ids=PIPES)
def test_a_pipe_without_a_writer_is_refused_at_once(command, finished, picture, capsys):
    for suffix in ("csv", "npz", "parquet", "txt", "json", "jpg"):
        os.mkfifo(f"p.{suffix}")
    assert spml(command.replace("RUN", str(finished))) == 2
    error = capsys.readouterr().err
    assert "a pipe, not a file" in error or "no ordinary file" in error
    assert not list(picture.glob("*.csv.*")) and not Path("predictions.csv").exists()


def test_eval_reports_data_that_changed_since_training(pictures, here, capsys):
    assert spml(f"train {pictures} {TINY} --out run") == 0
    assert spml("eval run --split val") == 0 and spml("eval run") == 0
    few = (
        "spml: no estimates of mAP, precision and recall: "
        "2 items have a positive, and a range needs 20 at least\n"
    )
    assert capsys.readouterr().err == few * 2
    before = Path("run/eval-val.json").read_bytes()
    pictures.write_text(pictures.read_text().replace("photos/0.jpg,red", "photos/0.jpg,blue"))
    assert spml("eval run --split val") == 2
    assert "other rows or labels than the run was trained with" in capsys.readouterr().err
    assert Path("run/eval-val.json").read_bytes() == before
    assert spml("eval run --split test") == 0
    assert "other rows or labels" in capsys.readouterr().err
    assert json.loads(Path("run/eval-test.json").read_text())["data_changed"] is True


def test_review_and_explain_report_data_that_changed_since_training(pictures, here, capsys):
    assert spml(f"train photos.csv {TINY} --out run") == 0
    Path("answers.csv").write_text("image,class,answer\nphotos/1.png,red,1\n")
    commands = {
        "review": "review run",
        "answers.csv": "review run --answers answers.csv",
        "worst": "explain run --worst 2",
        "val": "explain run --worst 2 --split val",
    }
    uncalibrated = (
        "spml: the model is not calibrated, so the list has as many labels as --count; "
        "after spml calibrate it ends where labels become improbable\n"
    )
    notes = {"review": uncalibrated}
    capsys.readouterr()
    for name, command in commands.items():
        assert spml(f"{command} --out {name}-before.csv") == 0
        assert capsys.readouterr().err == notes.get(name, "")
    head, first, second, *rest = pictures.read_text().splitlines()
    pictures.write_text("\n".join([head, second, first, *rest]))
    for name, command in commands.items():
        assert spml(f"{command} --out {name}-after.csv") == 0
        message = "spml: photos.csv has other rows or labels than the run was trained with\n"
        expected = message + notes.get(name, "")
        assert capsys.readouterr().err == expected and Path(f"{name}-after.csv").exists()


def test_a_closed_output_pipe_is_not_an_error(run):
    command = [sys.executable, "-m", "spml.cli", "eval", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == 141
