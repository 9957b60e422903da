"""Class folders, with and without splits."""

import warnings

import pytest

from spml.data import read
from spml.errors import UserError
from tests.data.conftest import positives, refused, train


def test_class_folders(tmp_path, write):
    hidden = ["dog/.DS_Store", "dog/Thumbs.db", ".git/x/y.jpg"]
    for name in ("dog/b.jpg", "dog/a.PNG", "hot dog/inner/c.webp", *hidden):
        write("", f"pictures/{name}")
    with warnings.catch_warnings(action="error"):  # system files are not reported
        table = train(tmp_path / "pictures")
    expected = {"dog/a.PNG": ["dog"], "dog/b.jpg": ["dog"], "hot dog/inner/c.webp": ["hot dog"]}
    assert positives(table) == expected
    assert (table.root, table.sparse.fill) == (tmp_path / "pictures", 0)
    assert train(tmp_path / "pictures", labels="complete").sparse.fill == -1


def test_splits(tmp_path, write):
    for name in ("train/dog/a.jpg", "val/cat/a.jpg", "test/dog/b.jpg"):
        write("", f"pictures/{name}")
    tables = read(tmp_path / "pictures")
    assert list(tables) == ["train", "val", "test"]
    assert positives(tables["val"]) == {"val/cat/a.jpg": ["cat"]}
    assert tables["test"].classes == ["cat", "dog"]


def test_a_class_may_be_called_train(tmp_path, write):
    for name in ("train/a.jpg", "bus/b.jpg"):
        write("", f"pictures/{name}")
    expected = {"bus/b.jpg": ["bus"], "train/a.jpg": ["train"]}
    assert positives(train(tmp_path / "pictures")) == expected


@pytest.mark.parametrize(
    "names", ["train valid test", "Train Test", "training validation", "val test", "train val x"]
)
def test_splits_of_other_names_are_no_classes(tmp_path, write, names):
    names = names.split()
    for name in names:
        write("", f"pictures/{name}/dog/a.jpg")
        write("", f"pictures/{name}/notes.txt")
    first = sorted(set(names) - {"x"})[0]
    with refused(f"'{first}', .* are splits and not classes; call them 'train', 'val' and 'test"):
        read(tmp_path / "pictures")


def test_classes_named_like_splits_hold_pictures(tmp_path, write):
    for name in ("train/steam/a.jpg", "bus/city/b.jpg", "test/c.jpg", "test/inner/d.jpg"):
        write("", f"pictures/{name}")
    assert train(tmp_path / "pictures").classes == ["bus", "test", "train"]


def test_other_files_are_counted(tmp_path, write):
    for name in ("dog/a.jpg", "dog/notes.txt", "dog/more.md"):
        write("", f"pictures/{name}")
    (tmp_path / "pictures/dog/z.jpg").symlink_to("gone.jpg")
    message = r"3 files are no pictures and were left out, first .*more.md"
    with pytest.warns(UserWarning, match=message):
        assert list(train(tmp_path / "pictures").items) == ["dog/a.jpg"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no class folders"),
        (["a.jpg"], "no class folders; put each picture into a folder"),
        (["train/a.jpg"], "train: no class folders"),
        (["dog/"], "no rows"),
        (["dog/a.jpg", "loose.jpg"], "1 pictures lie outside the class folders, first .*loose.jpg"),
    ],
)
def test_folders_without_pictures(tmp_path, write, names, message):
    (tmp_path / "pictures").mkdir()
    for name in names:
        if name.endswith("/"):
            (tmp_path / "pictures" / name).mkdir()
        else:
            write("", f"pictures/{name}")
    with refused(message):
        read(tmp_path / "pictures")


def test_a_root_is_refused(tmp_path):
    with pytest.raises(UserError, match="leave out the root"):
        read(tmp_path, tmp_path)
