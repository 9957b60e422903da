"""A user's own tables, class lists and columns of any name, to predictions."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from spml.cli import main
from spml.model import load_model
from tests.conftest import TINY, spml


def read(name):
    with Path(name).open(newline="") as file:
        return list(csv.reader(file))


def write(name, rows):
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows(rows)


FEATURES = "--features 'f*' --image-column site"


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Write sites.csv, with features that differ by orders of magnitude, in the current folder."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(120, 3)) * [1, 100, 0.01]
    rows = [["site", "f1", "f2", "f3", "oak", "beech"]]
    for i, one in enumerate(x):
        rows.append([f"s{i}", *one, int(one[0] > 0), int(one[1] > 0)])
    write("sites.csv", rows)
    return x


def test_from_a_csv_of_features_to_predictions(sites, capsys):
    words = "--out run --epochs 2 --accelerator cpu"
    assert spml(f"train sites.csv {FEATURES} {words}") == 0
    assert "spml: 3 columns of features: 'f1', 'f2', 'f3'" in capsys.readouterr().err
    config = json.loads(Path("run/config.json").read_text())
    assert config["columns"] == {"image": "site", "features": "f*"}
    assert "--features 'f*'" in config["command"]

    assert spml("eval run") == 0
    out, err = capsys.readouterr()
    assert "no test split: these figures are of the validation rows" in err
    assert "written to run/eval-val.json" in out
    assert spml("eval run --split test") == 2

    # The model finds its features by name, whatever else the file holds.
    write("new.csv", [[row[3], "x", *row[:3]] for row in read("sites.csv")])
    assert spml("predict run sites.csv --out a.csv --image-column site") == 0
    assert spml("predict run new.csv --out b.csv --image-column site") == 0
    assert read("a.csv") == read("b.csv")
    first, row, *_ = read("a.csv")
    assert first == ["id", "tags", "oak", "beech"] and row[0] == "s0"
    assert spml("predict run sites.csv --out a.jsonl") == 0
    assert json.loads(Path("a.jsonl").read_text().splitlines()[0])["id"] == "sites/0"


def test_features_are_standardised_as_those_of_arrays(sites):
    from spml.data import load
    from spml.data.readers.columns import Columns
    from spml.train import Settings
    from spml.train.fitting import make_model
    from spml.train.resolve import resolve

    experiment = load("sites.csv", columns=Columns("site", features="f*"))
    model = make_model(experiment, resolve(Settings(accelerator="cpu"), experiment))
    x = sites[experiment.train_rows]
    np.testing.assert_allclose(model.mean.numpy().ravel(), x.mean(axis=0), rtol=1e-4, atol=1e-6)


def test_a_model_without_names_of_features_needs_them(sites, capsys):
    labels = np.eye(2, dtype=np.int8)[:1].repeat(120, 0)
    np.savez("x.npz", x=sites, labels=labels, classes=["a", "b"])
    assert spml("train x.npz --out run --epochs 1 --accelerator cpu --quiet") == 0
    assert spml("predict run sites.csv") == 2
    assert "name their columns, in its order, with --features" in capsys.readouterr().err
    assert spml("predict run sites.csv --features 'f*'") == 0
    assert spml("predict run sites.csv --features f1 --overwrite") == 2
    assert "1 features, the model takes 3" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "warned"), [("", True), ("--label-separator ,", False)])
def test_class_names_with_separators_are_reported(tmp_path, monkeypatch, capsys, flags, warned):
    monkeypatch.chdir(tmp_path)
    rows = [f'{i},{i / 9},"{"line, outdoor" if i % 2 else "tree"}"' for i in range(20)]
    (tmp_path / "own.csv").write_text("\n".join(["id,f1,tags", *rows]) + "\n")
    flags = f"--features f1 --label-column tags {flags}"
    assert spml(f"check own.csv {flags}") == 0
    assert ("'line, outdoor': contains ','" in capsys.readouterr().out) is warned
    assert spml(f"train own.csv {flags} --epochs 1 --accelerator cpu") == 0
    note = (
        "spml: 1 class name contains a separator, such as 'line, outdoor'; "
        "if several labels are meant, give --label-separator ','"
    )
    assert (note in capsys.readouterr().err) is warned


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
