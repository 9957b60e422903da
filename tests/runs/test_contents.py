"""Items that differ from those of training are refused by name, or accepted and recorded."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from spml.data import LabelTable, load
from spml.runs.contents import Contents
from spml.runs.run import Run
from spml.train import fit
from tests.conftest import failing, refused, same, spml

COLUMNS = "--backbone tiny --size 16 --epochs 1 --batch-size 4 --method gr --accelerator cpu"
CHANGED = "items have other content than when the run was trained, the first is"


def negated(experiment):
    """The same data with every value of the training rows negated."""
    table = experiment.observed
    x = -table.x if table.x.dtype.kind == "f" else 255 - table.x
    other = LabelTable(table.items, table.classes, table.sparse, x=x)
    return replace(experiment, observed=other)


@pytest.fixture
def begun(scenes, quick, tmp_path):
    with failing(3):
        fit(scenes, quick, tmp_path / "run", quiet=True)
    return tmp_path / "run"


def test_features_and_pixels_that_changed_are_refused_when_a_run_resumes(
    features_file, scenes, quick, begun, tmp_path
):
    with refused(rf"176 of 240 {CHANGED} '0'; put them back.*--accept-changed-data"):
        fit(negated(scenes), quick, begun, resume=True, quiet=True)
    features = load(features_file, labels="observed")
    settings = replace(quick, backbone=None)
    with failing(3):
        fit(features, settings, tmp_path / "features", quiet=True)
    with refused(rf"80 of 120 {CHANGED} '0'; put them back"):
        fit(negated(features), settings, tmp_path / "features", resume=True, quiet=True)


def test_accepted_changes_are_recorded_and_hashed(scenes, quick, begun, capsys):
    fit(negated(scenes), quick, begun, resume=True, accept_changed_data=True)
    assert f"176 of 240 {CHANGED}" in capsys.readouterr().out
    config = json.loads((begun / "config.json").read_text())
    assert config["changed_data"] == [{"items": 176, "after_epoch": 2}]
    assert not len(Run(begun).contents["train"].changed(negated(scenes).observed))
    with refused(CHANGED):
        fit(scenes, quick, begun, resume=True, quiet=True)


def test_one_changed_value_is_noticed_and_new_rows_are_not(scenes):
    table = scenes.observed
    x = table.x.copy()
    x[7, 0, 0, 0] ^= 1
    stored = Contents.of(table)
    assert stored.changed(table.replaced(x=x)).tolist() == [7]
    assert not len(Contents.of(table.take([1, 2])).changed(table))


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_lost_hashes_are_made_again_if_a_sample_is_the_same(scenes, quick, begun, finished, damage):
    damage(begun / "contents.npz")
    with refused("begun with other pictures or features"):
        fit(negated(scenes), quick, begun, resume=True, quiet=True)
    fit(scenes, quick, begun, resume=True, quiet=True)
    same(begun, finished)


def test_a_race_notices_changed_data_between_two_candidates(scenes, quick, tmp_path, monkeypatch):
    monkeypatch.setattr("spml.train.race.FEWEST", 10)
    settings = replace(quick, method="auto", epochs=2, selection="observed", race_budget=1.5)
    with failing(3):  # in the second candidate
        fit(scenes, settings, tmp_path / "run", quiet=True)
    with refused(CHANGED):
        fit(negated(scenes), settings, tmp_path / "run", resume=True, quiet=True)
    fit(scenes, settings, tmp_path / "run", resume=True, quiet=True)


@pytest.fixture
def trained(pictures, monkeypatch):
    """A finished run on picture files, and its folder."""
    monkeypatch.chdir(pictures.parent)
    assert spml(f"train photos.csv {COLUMNS} --out run --quiet") == 0
    return pictures.parent


def repaint(folder, name="8.jpg"):
    """Replace a picture by another of the same name."""
    Image.new("RGB", (28, 16), (9, 9, 9)).save(folder / "photos" / name)


def test_replaced_pictures_are_refused_when_a_run_resumes(trained, capsys):
    (trained / "run/result.json").unlink()
    repaint(trained, "1.png")
    resume = f"train photos.csv {COLUMNS} --out run --resume"
    assert spml(resume) == 2
    assert f"1 of 12 {CHANGED} 'photos/1.png'" in capsys.readouterr().err
    assert spml(f"{resume} --accept-changed-data") == 0
    assert json.loads((trained / "run/config.json").read_text())["changed_data"]
    assert "--accept" not in json.loads((trained / "run/config.json").read_text())["command"]


def test_pictures_that_were_copied_or_touched_are_the_same(trained, capsys):
    shutil.copytree(trained / "photos", trained / "copied/photos")
    os.utime(trained / "photos/1.png", (1, 1))
    assert spml(f"train photos.csv {COLUMNS} --out run --resume") == 0
    assert spml("eval run --root copied") == 0
    assert "content" not in capsys.readouterr().err


def test_a_picture_of_the_same_length_and_time_is_noticed_in_the_sample(trained, capsys):
    path = trained / "photos/9.png"
    status, data = path.stat(), bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert spml("eval run --split test") == 2
    assert f"1 of 2 {CHANGED} 'photos/9.png'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    ["eval run --split val", "calibrate run", "review run --split val", "explain run --worst 2"],
)
def test_commands_that_read_changed_pictures_refuse_them_unless_accepted(trained, capsys, command):
    repaint(trained, "9.png" if "explain" in command else "8.jpg")
    for file in (trained / "run/scores").glob("val-*"):
        file.unlink()
    assert spml(command) == 2
    printed = capsys.readouterr().err
    assert CHANGED in printed and "--accept-changed-data" in printed and printed.count("\n") == 1
    accepted = spml(f"{command} --accept-changed-data")
    printed = capsys.readouterr().err
    if "calibrate" in command:  # two items are too few for it
        assert "validation items have a positive" in printed
        return
    assert accepted == 0 and "other content" in printed
    if "eval" in command:
        result = json.loads((trained / "run/eval-val.json").read_text())
        assert result["data_changed"] and result["changed_items"] == 1


def test_without_cache_pictures_are_compared_too(pictures, monkeypatch, capsys):
    monkeypatch.chdir(pictures.parent)
    train = f"train photos.csv {COLUMNS} --cache none --out run --quiet"
    assert spml(train) == 0
    stored = Run(pictures.parent / "run").contents["train"]
    assert stored.digests.any(axis=1).all() and np.all(stored.status > 0)
    repaint(pictures.parent, "0.jpg")
    assert spml(f"{train} --resume") == 2 and CHANGED in capsys.readouterr().err
