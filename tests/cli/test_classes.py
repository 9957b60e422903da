"""`--classes` accepts a file of names or the names themselves in every command."""

import json
from pathlib import Path

import numpy as np
import pytest

from spml.cli import main

TRAIN = ["--backbone", "tiny", "--size", "16", "--epochs", "1", "--accelerator", "cpu", "--quiet"]
COMMANDS = {
    "check": ["check", "photos.csv"],
    "stats": ["stats", "photos.csv", "--json", "OUT"],
    "train": ["train", "photos.csv", *TRAIN, "--out", "OUT"],
    "predict": ["predict", "run", "photos", "--out", "OUT.csv"],
    "review": ["review", "run", "--out", "OUT"],
    "explain": ["explain", "run", "photos/0.jpg", "--out", "OUT"],
}


@pytest.fixture
def here(pictures, monkeypatch):
    monkeypatch.chdir(pictures.parent)
    assert main(["train", "photos.csv", "--classes", "red,green,blue", *TRAIN, "--out", "run"]) == 0


def written(out):
    """Every file's text without its name, times and pictures."""
    files = sorted(
        path
        for path in Path().glob(f"{out}*")
        for path in (path, *path.rglob("*"))
        if path.is_file()
    )
    texts = [
        path
        for path in files
        if path.suffix in (".csv", "") or path.name in ("index.html", "model.json")
    ]
    return [path.read_text().replace(out, "") for path in texts]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_file_of_names_equals_the_names_themselves(command, here, capsys):
    Path("names.txt").write_text("red\ngreen\nblue\n")
    outputs = []
    for out, classes in (("made-1", "names.txt"), ("made-2", "red, green,blue")):
        capsys.readouterr()
        assert main([*(word.replace("OUT", out) for word in command), "--classes", classes]) == 0
        printed = capsys.readouterr()
        outputs.append([printed.out.replace(out, ""), printed.err, *written(out)])
    assert outputs[0] == outputs[1]
    assert main([*(word.replace("OUT", "none") for word in command), "--classes", "gone.txt"]) == 2
    assert "gone.txt: no such file of class names" in capsys.readouterr().err and not list(
        Path().glob("none*")
    )


def test_the_model_keeps_the_order_of_the_class_list(here, capsys):
    assert json.loads(Path("run/best/model.json").read_text())["classes"] == [
        "red",
        "green",
        "blue",
    ]
    assert main(["predict", "run", "photos", "--out", "a.csv", "--classes", "blue,green,red"]) == 2
    assert (
        "the names given: the model has these classes in another order, 'red' first"
        in capsys.readouterr().err
    )


def test_a_run_with_renamed_classes_finds_its_data_again(pictures, monkeypatch, capsys):
    monkeypatch.chdir(pictures.parent)
    Path("names.txt").write_text("red\trot\ngreen\nblue\tblau\n")
    assert main(["train", "photos.csv", "--classes", "names.txt", *TRAIN, "--out", "run"]) == 0
    assert json.loads(Path("run/best/model.json").read_text())["classes"] == [
        "rot",
        "green",
        "blau",
    ]
    assert json.loads(Path("run/config.json").read_text())["classes"] == {
        "red": "rot",
        "green": "green",
        "blue": "blau",
    }
    Path("names.txt").unlink()
    assert main(["eval", "run", "--split", "val"]) == 0
    assert main(["review", "run", "--out", "list"]) == 0


def test_names_that_a_class_list_cannot_hold_are_matched_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels, names = np.tile(np.eye(3, dtype=np.int8), (8, 1)), ["dog ", "a\tb", "c"]
    np.savez("a.npz", x=np.tile(np.eye(3), (8, 1)), labels=labels, classes=np.array(names))
    assert (
        main(["train", "a.npz", "--epochs", "1", "--accelerator", "cpu", "--quiet", "--out", "run"])
        == 0
    )
    assert json.loads(Path("run/config.json").read_text())["classes"] is None
    assert main(["eval", "run", "--split", "val"]) == 0
