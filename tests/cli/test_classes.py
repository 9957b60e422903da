"""`--classes` accepts a file of names or the names themselves in every command."""

import json
from pathlib import Path

import numpy as np
import pytest

from spml.cli import main
from spml.model import load_model
from tests.conftest import TINY, spml

COMMANDS = [
    "check photos.csv",
    "stats photos.csv --json OUT",
    f"train photos.csv {TINY} --out OUT",
    "predict run photos --out OUT.csv",
    "review run --out OUT",
    "explain run photos/0.jpg --out OUT",
]


@pytest.fixture
def trained(pictures, here):
    assert spml(f"train photos.csv --classes red,green,blue {TINY} --out run") == 0


def written(out):
    """Every file's text without its name, times and pictures."""
    paths = [*Path().glob(f"{out}*"), *Path().glob(f"{out}*/**/*")]
    texts = [
        path
        for path in sorted(set(paths))
        if path.is_file()
        and (path.suffix in (".csv", "") or path.name in ("index.html", "model.json"))
    ]
    return [path.read_text().replace(out, "") for path in texts]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_a_file_of_names_equals_the_names_themselves(command, trained, capsys):
    Path("names.txt").write_text("red\ngreen\nblue\n")
    outputs = []
    for out, classes in (("made-1", "names.txt"), ("made-2", "red, green,blue")):
        capsys.readouterr()
        assert main([*command.replace("OUT", out).split(), "--classes", classes]) == 0
        printed = capsys.readouterr()
        outputs.append([printed.out.replace(out, ""), printed.err, *written(out)])
    assert outputs[0] == outputs[1]
    assert main([*command.replace("OUT", "none").split(), "--classes", "gone.txt"]) == 2
    assert "gone.txt: no such file of class names" in capsys.readouterr().err
    assert not list(Path().glob("none*"))


def test_the_model_keeps_the_order_of_the_class_list(trained, capsys):
    assert load_model("run")[1].classes == ["red", "green", "blue"]
    assert spml("predict run photos --out a.csv --classes blue,green,red") == 2
    message = "the names given: the model has these classes in another order, 'red' first"
    assert message in capsys.readouterr().err


def test_a_run_with_renamed_classes_finds_its_data_again(pictures, here):
    Path("names.txt").write_text("red\trot\ngreen\nblue\tblau\n")
    assert spml(f"train photos.csv --classes names.txt {TINY} --out run") == 0
    assert load_model("run")[1].classes == ["rot", "green", "blau"]
    renamed = {"red": "rot", "green": "green", "blue": "blau"}
    assert json.loads(Path("run/config.json").read_text())["classes"] == renamed
    Path("names.txt").unlink()
    assert spml("eval run --split val") == 0
    assert spml("review run --out list") == 0


def test_names_that_a_class_list_cannot_hold_are_matched_too(here):
    labels, names = np.tile(np.eye(3, dtype=np.int8), (8, 1)), ["dog ", "a\tb", "c"]
    np.savez("a.npz", x=np.tile(np.eye(3), (8, 1)), labels=labels, classes=np.array(names))
    assert spml("train a.npz --epochs 1 --accelerator cpu --quiet --out run") == 0
    assert json.loads(Path("run/config.json").read_text())["classes"] is None
    assert spml("eval run --split val") == 0
