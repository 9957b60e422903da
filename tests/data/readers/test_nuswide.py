"""Miniature copies of NUS-WIDE: the official lists and the formatted files."""

import numpy as np
import pytest

from spml.data import load, read
from spml.data.readers.nuswide import CLASSES
from tests.data.conftest import positives, refused, train

LABELS, IMAGES = "formatted_train_labels.npy", "formatted_val_images.npy"
SKY = "Groundtruth/TrainTestLabels/Labels_sky_Train.txt"
MARKS = {
    ("sky", "Train"): "1\n0\n1\n",
    ("lake", "Train"): "0\n-1130179\n1\n",
    ("zebra", "Test"): "0\n1\n\n",
}


@pytest.fixture(params=["ImageList Groundtruth", ". ."])
def official(request, tmp_path, write):
    lists, truth = request.param.split()
    images = "actor\\0001_11.jpg\r\nactor\\0002_22.jpg\r\nzoo\\0003_33.jpg\r\n"
    write(images, f"{lists}/TrainImagelist.txt")
    write("zoo\\0004_44.jpg\nzoo\\0005_55.jpg\n", f"{lists}/TestImagelist.txt")
    for name in CLASSES:
        for split, rows in (("Train", 3), ("Test", 2)):
            marks = MARKS.get((name, split), "0\n" * rows)
            write(marks, f"{truth}/TrainTestLabels/Labels_{name}_{split}.txt")
    return tmp_path


@pytest.fixture
def formatted(tmp_path):
    for name, rows in (("train", 4), ("val", 2)):
        labels = np.zeros((rows, 81))
        labels[np.arange(rows), np.arange(rows)] = 1
        np.save(tmp_path / f"formatted_{name}_labels.npy", labels)
        images = [f"{name}\\{i}.jpg" for i in range(rows)]
        np.save(tmp_path / f"formatted_{name}_images.npy", np.array(images))
    return tmp_path


def test_there_are_81_concepts():
    assert len(CLASSES) == 81
    assert list(CLASSES) == sorted(set(CLASSES))


def test_official_lists(official):
    tables = read("nuswide", official)
    first = {"actor/0001_11.jpg": ["sky"], "actor/0002_22.jpg": []}
    assert positives(tables["train"]) == first | {"zoo/0003_33.jpg": ["lake", "sky"]}
    assert positives(tables["test"]) == {"zoo/0004_44.jpg": [], "zoo/0005_55.jpg": ["zebra"]}
    assert tables["train"].root == official


def test_formatted_files(formatted):
    (formatted / "Flickr").mkdir()
    tables = read("nuswide", formatted)
    assert positives(tables["train"])["train/2.jpg"] == ["beach"]
    assert positives(tables["test"]) == {"val/0.jpg": ["airport"], "val/1.jpg": ["animal"]}
    assert (tables["train"].root, tables["train"].sparse.fill) == (formatted / "Flickr", -1)
    assert train("nuswide", formatted, labels="observed").sparse.fill == 0


def test_the_version_is_named(official):
    assert load("nuswide", official, val_fraction=0).version == "official lists"


def test_formatted_versions_are_distinguished(formatted):
    before = load("nuswide", formatted, val_fraction=0).version
    np.save(formatted / "formatted_train_images.npy", np.array(["a", "b", "c", "d"]))
    after = load("nuswide", formatted, val_fraction=0).version
    assert before.startswith("formatted files")
    assert before != after


@pytest.mark.parametrize("official", ["ImageList Groundtruth"], indirect=True)
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ImageList/TestImagelist.txt", None, "no TestImagelist.txt there; put the official lists"),
        (SKY, None, "Labels_sky_Train.txt: No such file"),
        (SKY, "1\n0\n", "2 lines, TrainImagelist.txt has 3"),
        (SKY, "1\n0\n7\n", "Labels_sky_Train.txt, line 3: 7 is not 0 or 1"),
    ],
)
def test_damaged_lists(official, damage, name, content, message):
    damage(name, content)
    with refused(message):
        read("nuswide", official)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (LABELS, np.zeros((4, 80)), r"\(4, 80\); it must have 81 columns"),
        (LABELS, np.zeros(4), "must have 81 columns"),
        (LABELS, np.full((4, 81), 0.5), "0.5 in row 0, column 0; a label is"),
        (IMAGES, np.array(["a"]), "1 entries for 2 rows of formatted_val_labels.npy"),
        (IMAGES, np.array([1, 2]), "list of strings"),
        (IMAGES, np.array([None, "a"]), "not a .npy file of plain"),
        (IMAGES, None, "formatted_val_images.npy: No such file"),
    ],
)
def test_damaged_formatted_files(formatted, name, array, message):
    (formatted / name).unlink()
    if array is not None:
        np.save(formatted / name, array)
    with refused(message):
        read("nuswide", formatted)


def test_missing_files_are_reported(tmp_path):
    with refused(r"no TrainImagelist.txt there"):
        read("nuswide", tmp_path)
