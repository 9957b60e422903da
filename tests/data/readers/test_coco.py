"""A miniature COCO 2014: order, labels, and damaged copies."""

import json

import numpy as np
import pytest

from spml.data import load, observe, read
from tests.data.conftest import positives, refused

TRAIN = "annotations/instances_train2014.json"
CATEGORIES = [{"id": 18, "name": "dog"}, {"id": 1, "name": "person"}, {"id": 90, "name": "bird"}]


def instances(split, pairs, images=None):
    numbers = images or sorted({image for image, _ in pairs})
    return {
        "images": [
            {"id": i, "file_name": f"COCO_{split}2014_{i:012d}.jpg", "height": 4} for i in numbers
        ],
        "annotations": [
            {"id": 7, "image_id": i, "category_id": c, "iscrowd": 0, "segmentation": [[1.5, 2.0]]}
            for i, c in pairs
        ],
        "categories": CATEGORIES,
    }


@pytest.fixture
def coco(tmp_path):
    folder = tmp_path / "annotations"
    folder.mkdir()
    pairs = [(9, 1), (100, 18), (25, 90), (9, 18), (9, 1)]
    train = instances("train", pairs, images=[9, 25, 100, 4])
    (folder / "instances_train2014.json").write_text(json.dumps(train))
    (folder / "instances_val2014.json").write_text(json.dumps(instances("val", [(3, 1)])))
    return tmp_path


def name(number, split="train"):
    return f"{split}2014/COCO_{split}2014_{number:012d}.jpg"


def test_reading(coco):
    tables = read("coco", coco)
    train = tables["train"]

    assert list(tables) == ["train", "test"]
    assert train.classes == ["dog", "person", "bird"]
    assert list(train.items) == [name(100), name(25), name(9)]  # as strings, and without image 4
    assert positives(train) == {name(100): ["dog"], name(25): ["bird"], name(9): ["dog", "person"]}
    assert positives(tables["test"]) == {name(3, "val"): ["person"]}
    assert (train.root, train.sparse.fill) == (coco, -1)


def test_messages_name_the_first_annotation_of_a_picture(coco):
    train = read("coco", coco)["train"]
    assert [train.places.short(row) for row in range(3)] == [
        *("annotation 1", "annotation 2", "annotation 0")
    ]


def test_loading(coco):
    experiment = load("coco", coco, val_fraction=0)
    expected = observe([[1, -1, -1], [-1, -1, 1], [1, 1, -1]])
    np.testing.assert_array_equal(experiment.observed.labels, expected)
    assert (experiment.label_kind, len(experiment.test), experiment.version) == ("complete", 1, "")


def changed(pairs, images=None, **parts):
    return json.dumps(instances("train", pairs, images) | parts)


def without(key):
    content = instances("train", [(1, 1)])
    del content[key]
    return json.dumps(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, f"no {TRAIN} there; unpack annotations_trainval2014.zip"),
        ("", "line 1: Expecting value; unpack"),
        ('{"images": [\n}', "line 2: "),
        (b"\xff\xfe\x00", "not a JSON file"),
        ("[" * 100_000, "not a JSON file"),
        ("[]", "not the layout"),
        ("3", "not the layout"),
        (without("images"), "no 'images'"),
        (without("annotations"), "no 'annotations'"),
        (without("categories"), "no 'categories'"),
        (changed([(1, 77)]), "no 77"),
        (changed([(1, 1)], images=[2]), "no 1"),
        (changed([]), "no rows"),
        (changed([(1, 1)], annotations=[{"image_id": {}, "category_id": 1}]), "not the layout"),
        (changed([(1, 1)], categories=[{"id": 1, "name": "a"}] * 2), "categories .* differ"),
        (changed([(1, 1)], categories=[{"id": i, "name": "a"} for i in (1, 2)]), "one name"),
    ],
)
def test_damaged_copies(coco, damage, content, message):
    damage(TRAIN, content)
    with refused(message):
        read("coco", coco)


def test_a_missing_val_file(coco):
    (coco / "annotations" / "instances_val2014.json").unlink()
    with refused(r"instances_val2014.json: No such file"):
        read("coco", coco)
