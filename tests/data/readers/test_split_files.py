"""Validation and test rows from separate files."""

import numpy as np
import pytest

from spml.data import load, read
from spml.errors import UserError
from tests.data.conftest import refused, rows, save_arrays

KNOWN = r"val.csv, line 3: 'b' is in val, but in train.*train.csv, line 3"
HEAD, MARKED = "image,label\n", "image,label,split\n"
TRAIN = f"{HEAD}a,dog\nb,cat\nc,dog|cat\n"


def test_the_other_files_use_the_classes_of_the_first(write):
    train = write(TRAIN, "train.csv")
    val = write("image,dog,cat\nd,1,-1\ne,-1,1\n", "val.csv")
    test = write("image,label\nf,dog\n", "test.csv")
    tables = read(train, test=test, val=val)

    assert list(tables) == ["train", "val", "test"]
    assert [table.classes for table in tables.values()] == [["cat", "dog"]] * 3
    assert rows(tables["val"]) == {"d": [-1, 1], "e": [1, -1]}
    assert rows(tables["test"]) == {"f": [0, 1]}
    assert read(train, val=str(val)).keys() == {"train", "val"}
    numbered = write("image,label\n0,dog\n1,cat\n", "numbered.csv")
    items = read(train, val=numbered)["val"].items  # names of files, not rows of arrays
    assert list(items) == ["0", "1"]
    assert rows(read(train, val=val, labels="complete")["val"]) == {"d": [-1, 1], "e": [1, -1]}


def test_a_class_list_holds_for_all(write):
    names = write("cat\tKatze\ndog\tHund\nbird\n", "classes.txt")
    val = write("image,label\nd,bird|dog\n", "val.csv")
    tables = read(write(TRAIN, "train.csv"), val=val, classes=names)
    assert tables["val"].classes == ["Katze", "Hund", "bird"]
    assert rows(tables["val"]) == {"d": [0, 1, 1]}


def test_load_validates_completely_if_every_label_is_known(write):
    train = write(TRAIN, "train.csv")
    experiment = load(
        train,
        val=write("image,cat,dog\nd,1,-1\ne,-1,1\n", "val.csv"),
        test=write("image,label\nf,dog", "t.csv"),
    )
    assert experiment.validates_completely and list(experiment.test.items) == ["f"]
    assert (experiment.train_rows.tolist(), experiment.val_rows.tolist()) == ([0, 1, 2], [3, 4])
    partly = write("image,cat,dog\nd,1,\ne,-1,1\n", "val.csv")
    assert not load(train, val=partly).validates_completely


def test_a_split_column_may_repeat_the_option(write):
    train = write(TRAIN, "train.csv")
    held = write("image,label,split\nd,dog,val\n", "v.csv")
    assert list(read(train, val=held)) == ["train", "val"]
    marked = write("image,label,split\na,dog,\nb,cat,test\n", "marked.csv")
    held = write("image,label\nd,dog\n", "v.csv")
    assert list(read(marked, val=held)) == ["train", "val", "test"]


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        (TRAIN, f"{HEAD}d,dgo\n", r"val.csv, line 2: class 'dgo'.*train.csv.*did you mean 'dog'\?"),
        (TRAIN, f"{HEAD}d,dog\nb,dog\n", KNOWN),
        (TRAIN, "image,label\n./x/../b,dog\nz,dog\n", "val.csv, line 2.*train.csv, line 3"),
        (TRAIN, f"{MARKED}d,dog,val\ne,dog,\n", "val.csv: --val.*marked train and val.*unmark"),
        (TRAIN, f"{MARKED}d,dog,test\n", "val.csv: --val.*marked test"),
        (TRAIN, "image,label\nd,\n", "val.csv: no row has a label"),
        (TRAIN, "image,fox\nd,1\n", "val.csv, line 1: class 'fox'"),
        (f"{MARKED}a,dog,\nb,dog,val\n", f"{HEAD}d,dog\n", "line 3.*--val names.*give one"),
    ],
)
def test_files_that_do_not_fit(write, train, val, message):
    with refused(message):
        read(write(train, "train.csv"), val=write(val, "val.csv"))


def test_an_item_in_val_and_test_is_named(write):
    val = write("image,label\nd,dog\n", "val.csv")
    test = write("image,label\ne,dog\nd,dog\n", "test.csv")
    with refused(r"test.csv, line 3: 'd' is in test, but in val too \(.*val.csv, line 2\)"):
        read(write(TRAIN, "train.csv"), val=val, test=test)


def test_problems_are_collected_over_all_files(write):
    errors = []
    val = write("image,label,split\nd,dog,\na,dog,\ne,dgo,\nf,dog,no\nb,cat,\n", "val.csv")
    tables = read(write(TRAIN + "z\n", "train.csv"), val=val, on_error=errors.append)
    assert rows(tables["val"]) == {"d": [0, 1]}
    others = [str(error) for error in errors if "too (" not in str(error)]
    places = [error.partition(":")[0].rpartition("/")[2] for error in others]
    assert places == ["train.csv, line 5", "val.csv, line 4", "val.csv, line 5"]
    assert sum("too (" in str(error) for error in errors) == 2
    with refused("every item is in another file too"):
        read(write(TRAIN, "train.csv"), val=write(TRAIN, "val.csv"), on_error=errors.append)


def test_paths_start_from_the_folder_of_each_file(write, tmp_path, monkeypatch):
    train = write(TRAIN, "one/train.csv")
    val = write("image,label\na,dog\nsub/b,dog\n/x/y,cat\n", "one/in/val.csv")
    table = read(train, val=val)["val"]
    assert (list(table.items), table.root) == (["in/a", "in/sub/b", "/x/y"], tmp_path / "one")
    other = read(train, val=write("image,label\na,dog\n", "two/val.csv"))["val"]
    assert list(other.items) == ["../two/a"]  # also after both are moved
    (tmp_path / "link").symlink_to(tmp_path / "deep/er")
    write(TRAIN, "deep/er/train.csv")
    linked = read(tmp_path / "link/train.csv", val=tmp_path / "two/val.csv")["val"]
    assert linked.file(0).resolve() == tmp_path / "two/a"
    monkeypatch.chdir(tmp_path)
    relative = read("one/train.csv", val="one/in/../in/val.csv")["val"]
    assert list(relative.items) == ["in/a", "in/sub/b", "/x/y"]
    with refused(r"/one/a' is in val, but in train too"):
        read(train, val=write(f"image,label\n{tmp_path}/one/a,dog\n", "two/val.csv"))
    rooted = read(train, tmp_path, val=write("image,label\nd,dog\n", "two/val.csv"))
    assert rooted["val"].root == tmp_path
    with refused("too"):
        read(train, tmp_path, val=val)


def test_arrays(tmp_path):
    x = np.arange(6.0).reshape(3, 2)
    train = save_arrays(tmp_path / "train.npz", [[1, 0], [0, 1], [1, 0]], x=x)
    val = save_arrays(tmp_path / "val.npz", [[1, -1], [-1, 1], [-1, 1]], x=x + 10)
    experiment = load(train, val=val)
    assert experiment.validates_completely
    labels = [[1, 0], [0, 1], [1, 0], [1, -1], [-1, 1], [-1, 1]]
    assert experiment.observed.labels.tolist() == labels
    assert list(experiment.observed.items) == ["0", "1", "2", "val.npz:0", "val.npz:1", "val.npz:2"]
    np.testing.assert_array_equal(experiment.observed.x, np.concatenate([x, x + 10]))

    with refused(r"wide.npz: its items are arrays of \(4,\), those of .*train.npz are arrays"):
        read(train, val=save_arrays(tmp_path / "wide.npz", [[1, 0]], x=np.ones((1, 4))))
    named = save_arrays(tmp_path / "named.npz", [[1, 0]] * 3, items=["p", "q", "r"])
    with refused(r"again.npz: 'q' is in test, but in train too"):
        read(named, test=save_arrays(tmp_path / "again.npz", [[1, 0]] * 2, items=["s", "q"]))


def test_files_and_arrays_do_not_mix(write, tmp_path):
    val = save_arrays(tmp_path / "val.npz", [[1, 0]])
    with refused(r"its items are arrays of \(2,\), those of .*my.csv are files"):
        read(write("image,label\nq,a\nr,b\n"), val=val)


def test_folders(tmp_path, write):
    for name in ("train/dog/1.jpg", "train/cat/2.jpg", "held/dog/1.jpg"):
        write("", name)
    tables = read(tmp_path / "train", val=tmp_path / "held")
    assert rows(tables["val"]) == {"../held/dog/1.jpg": [0, 1]}


def test_the_benchmarks_have_their_own_splits(write):
    with pytest.raises(UserError, match="digits has its own splits"):
        read("digits", val=write(TRAIN))
    with refused("no such file"):
        read(write(TRAIN), val="gone.csv")


def test_messages_name_the_file_of_a_row(write):
    train, val = write(TRAIN, "train.csv"), write("image,label\n\nd,dog\n", "val.csv")
    table = load(train, val=val).observed
    places = [table.where(row) for row in (0, 2, 3)]
    assert places == [f"{train}, line 2: ", f"{train}, line 4: ", f"{val}, line 3: "]
    assert table.take([3, 0]).where(0) == f"{val}, line 3: "
