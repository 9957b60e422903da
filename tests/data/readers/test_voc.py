"""A miniature VOC2012: lists, what counts as positive, and damaged copies."""

import pytest

from spml.data import load, read
from spml.data.readers.voc import CLASSES
from tests.data.conftest import positives, refused, train

DOG, FIRST = "dog_train.txt", "2008_000001 -1\n"


@pytest.fixture
def voc(tmp_path):
    """Two train images, two val images; the lists are not in order."""
    folder = tmp_path / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main"
    folder.mkdir(parents=True)
    lists = {"train": ["2008_000002", "2008_000001"], "val": ["2009_000001", "2009_000002"]}
    marks = {"person 2008_000001": "1", "dog 2008_000001": "0"}
    marks |= {"train 2008_000002": "1", "dog 2009_000002": "1"}
    for name, images in lists.items():
        (folder / f"{name}.txt").write_text("".join(f"{image}\n" for image in images))
        for label in CLASSES:
            lines = [f"{image} {marks.get(f'{label} {image}', '-1'):>2}\n" for image in images]
            (folder / f"{label}_{name}.txt").write_text("".join(lines))
    return folder


@pytest.mark.parametrize("root", ["VOCdevkit/VOC2012", "VOCdevkit", "."])
def test_reading(voc, root):
    tables = read("voc", voc.parents[3] / root)
    assert list(tables) == ["train", "test"]
    assert list(tables["train"].items) == ["2008_000001.jpg", "2008_000002.jpg"]
    expected = {"2008_000001.jpg": ["person"], "2008_000002.jpg": ["train"]}
    assert positives(tables["train"]) == expected
    assert positives(tables["test"]) == {"2009_000001.jpg": [], "2009_000002.jpg": ["dog"]}
    assert tables["train"].sparse.fill == -1
    assert tables["train"].root == voc.parents[1] / "JPEGImages"
    assert tables["train"].classes == sorted(CLASSES)


def test_observed(voc):
    assert train("voc", voc.parents[1], labels="observed").labels.tolist().count([0] * 20) == 0
    assert train("voc", voc.parents[1], labels="observed").labels.min() == 0


def test_loading(voc):
    experiment = load("voc", voc.parents[1], val_fraction=0)
    assert (experiment.name, len(experiment.test)) == ("voc", 2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (DOG, None, "dog_train.txt: No such file"),
        ("train.txt", None, "train.txt: No such file"),
        (DOG, FIRST, "dog_train.txt: 1 images, train.txt has 2"),
        (DOG, f"{FIRST}2008_000009 1\n", "line 2: '2008_000009' is not in train.txt"),
        (DOG, f"{FIRST}2008_2 yes\n", "line 2: '2008_2 yes' is not an image and 1, 0 or -1"),
        (DOG, "2008_000001\n", "line 1: '2008_000001' is not"),
        (DOG, b"\xff\n", "line 1: byte 0xff"),
        ("train.txt", "2008_000001\n", "line 1: '2008_000002' is not in train.txt"),
    ],
)
def test_damaged_copies(voc, damage, name, content, message):
    damage(voc / name, content)
    with refused(message):
        read("voc", voc.parents[1])
