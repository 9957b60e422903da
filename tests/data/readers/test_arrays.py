"""`.npz` files: features, pictures, every malformed case with its key, and fuzz."""

import io

import numpy as np
import pytest

from spml.data import read
from tests.data.conftest import refused, splits, train

GOOD = {
    "x": np.arange(12, dtype=np.float64).reshape(4, 3),
    "labels": np.array([[1, 0], [0, 1], [-1, 1], [1, 0]], np.int8),
    "classes": np.array(["dog", "cat"]),
}
UNKNOWN_SPLIT = np.array(["train", "train", "tst", "val"])


@pytest.fixture
def save(tmp_path):
    def saver(**arrays):
        stored = {key: value for key, value in (GOOD | arrays).items() if value is not None}
        np.savez(tmp_path / "x.npz", **stored)
        return tmp_path / "x.npz"

    return saver


def test_features(save):
    table = train(save())
    assert (table.classes, list(table.items)) == (["dog", "cat"], ["0", "1", "2", "3"])
    assert table.x.dtype == np.float32
    np.testing.assert_array_equal(table.x, GOOD["x"])
    np.testing.assert_array_equal(table.labels, GOOD["labels"])


def test_complete_takes_zero_as_negative(save):
    table = train(save(), labels="complete")
    np.testing.assert_array_equal(table.labels, np.where(GOOD["labels"] == 1, 1, -1))


def test_splits_and_items(save):
    items = np.array([b"a", b"b", b"c", b"d"])
    tables = read(save(split=np.array(["val", "train", "test", "train"]), items=items))
    assert splits(tables) == {"train": ["b", "d"], "val": ["a"], "test": ["c"]}
    np.testing.assert_array_equal(tables["train"].x, GOOD["x"][[1, 3]])


@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (4, 5, 6, 3)])
def test_pictures(save, shape):
    x = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    table = train(save(x=x))
    np.testing.assert_array_equal(table.x, x if shape[1] == 3 else x.transpose(0, 3, 1, 2))


def test_class_list_orders_the_columns(save):
    table = train(save(), classes=["cat", "dog"])
    assert table.classes == ["cat", "dog"]
    np.testing.assert_array_equal(table.labels, GOOD["labels"][:, ::-1])
    assert train(save(classes=None), classes=["bird", "fox"]).classes == ["bird", "fox"]


def with_value(key, row, value):
    array = GOOD[key].copy()
    array[row] = value
    return {key: array}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "no array 'x'.*labels, classes"),
        ({"labels": None}, "no array 'labels'.*x, classes"),
        ({"classes": None}, "no array 'classes'"),
        ({"x": np.zeros(4)}, r"x:.*\(4,\).*features \(N, D\)"),
        ({"x": np.zeros((4, 0))}, r"x:.*\(4, 0\)"),
        ({"x": np.zeros((4, 5, 5, 3))}, "x:.*float64.*uint8 pictures"),
        ({"x": np.zeros((4, 5, 5, 4), np.uint8)}, r"x:.*\(4, 5, 5, 4\)"),
        ({"x": np.array(["a", "b", "c", "d"])}, "x:"),
        ({"x": np.array([[None]] * 4)}, "x: cannot be read.*no objects"),
        (with_value("x", 2, np.nan), "x: row 2.*not finite.*remove the row"),
        (with_value("x", 3, np.inf), "x: row 3"),
        (with_value("x", 1, 1e300), "x: row 1"),
        (with_value("labels", 1, 7), "labels.*7 in row 1"),
        ({"labels": np.full((4, 2), np.nan)}, "labels.*nan in row 0"),
        ({"labels": np.zeros((4, 2), np.int8)}, "labels.*no row has a label"),
        ({"labels": np.ones((3, 2), np.int8)}, r"labels.*\(3, 2\).*N = 4"),
        ({"labels": np.ones(4, np.int8)}, r"labels.*\(4,\)"),
        ({"labels": np.full((4, 2), "dog")}, "labels.*<U3"),
        ({"labels": np.full((4, 2), {})}, "labels: cannot be read"),
        ({"classes": np.array(["dog"])}, "classes.*1 entries for 2 columns"),
        ({"classes": np.array(["dog", "dog"])}, "classes.*'dog' appears twice"),
        ({"classes": np.array(["dog", " "])}, "classes.*column 1 has no name.*give each class one"),
        ({"classes": np.array([1, 2])}, "classes.*list of strings"),
        ({"classes": np.array([["dog"], ["cat"]])}, r"classes.*\(2, 1\); give a list of strings"),
        ({"items": np.array(["a"])}, "items.*1 entries for 4 rows"),
        ({"split": np.array(["train"])}, "split.*1 entries for 4 rows"),
        ({"split": UNKNOWN_SPLIT}, "split.*'tst' in row 2.*did you mean 'test'"),
        ({"split": np.array([0, 1, 1, 1])}, "split.*list of strings"),
    ],
)
def test_malformed_arrays(save, change, message):
    with refused(f"x.npz.*{message}"):
        read(save(**change))


def test_class_lists_that_do_not_fit(save):
    with refused("'cat' is not in the class list.*'cart'"):
        read(save(), classes=["dog", "cart"])
    with refused("3 names"):
        read(save(), classes=["dog", "cat", "fox"])


@pytest.mark.parametrize("classes", [None, ["dog", "cat"]])
def test_a_repeated_class_is_refused_with_and_without_a_class_list(save, classes):
    with refused("class 'dog' appears twice; give each class one column"):
        read(save(classes=np.array(["dog", "dog"])), classes=classes)


def saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04zip", saved(np.ones(3))])
def test_files_that_are_no_npz(write, content):
    with refused(r"x.npz: not a .npz file.*numpy.savez"):
        read(write(content, "x.npz"))


def test_npy_files_in_one_folder(tmp_path):
    for key, array in (GOOD | {"split": np.array(["train", "train", "val", "test"])}).items():
        np.save(tmp_path / f"{'features' if key == 'x' else key}.npy", array)
    tables = read(tmp_path / "features.npy")
    assert {name: len(table) for name, table in tables.items()} == {"train": 2, "val": 1, "test": 1}
    np.testing.assert_array_equal(tables["train"].x, GOOD["x"][:2])


@pytest.mark.parametrize(
    ("missing", "message"),
    [("labels", "no array 'labels'; the arrays are x, classes"), ("classes", "no array 'classes'")],
)
def test_npy_files_that_are_missing(tmp_path, missing, message):
    for key, array in GOOD.items():
        if key != missing:
            np.save(tmp_path / f"{key}.npy", array)
    with refused(message):
        read(tmp_path / "x.npy")


@pytest.mark.parametrize("content", [b"", b"hello", saved(np.ones(3))[:40]])
def test_files_that_are_no_npy(write, content):
    with refused(r"x.npy: not a .npy file"):
        read(write(content, "x.npy"))


@pytest.mark.parametrize("name", ["image", "tags", "a|b"])
def test_classes_that_predictions_cannot_take(save, name):
    path = save(classes=np.array(["dog", name]))
    with refused(r"x.npz: classes: class .*; rename it, or"):
        read(path)
    (path.parent / "classes.txt").write_text(f"dog\n{name}\tother\n")
    assert train(path, classes=path.parent / "classes.txt").classes == ["dog", "other"]
