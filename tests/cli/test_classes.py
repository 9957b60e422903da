"""`--classes` means the same wherever it stands: a file of names, or the names."""

import json
from pathlib import Path

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
    files = sorted(path for path in Path().glob(f"{out}*") for path in (path, *path.rglob("*")) if path.is_file())
    kept = [path for path in files if path.suffix in (".csv", "") or path.name in ("index.html", "model.json")]
    return [path.read_text().replace(out, "") for path in kept]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_file_and_the_names_in_it_are_the_same(command, here, capsys):
    Path("names.txt").write_text("red\ngreen\nblue\n")
    found = []
    for out, given in (("made-1", "names.txt"), ("made-2", "red, green,blue")):
        capsys.readouterr()
        assert main([*(word.replace("OUT", out) for word in command), "--classes", given]) == 0
        told = capsys.readouterr()
        found.append([told.out.replace(out, ""), told.err, *written(out)])
    assert found[0] == found[1]
    assert main([*(word.replace("OUT", "none") for word in command), "--classes", "gone.txt"]) == 2
    assert "gone.txt: no such file of class names" in capsys.readouterr().err and not list(Path().glob("none*"))


def test_the_order_given_is_that_of_the_model(here, capsys):
    assert json.loads(Path("run/best/model.json").read_text())["classes"] == ["red", "green", "blue"]
    assert main(["predict", "run", "photos", "--out", "a.csv", "--classes", "blue,green,red"]) == 2
    assert "the names given: the model has these classes in another order, 'red' first" in capsys.readouterr().err
