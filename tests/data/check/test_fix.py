"""The cleaned copy of a table."""

from pathlib import Path

import numpy as np
import pytest

from spml.data import LabelTable, read
from spml.data.check.check import check
from spml.data.check.fix import clean, write_table
from spml.errors import UserError
from tests.data.check.test_check import kinds
from tests.data.conftest import refused, splits, train

DAMAGED = (
    "image,label,negative,split\nok.png,dog,cat,\ngone.png,dog,,\nbad.png,dog,,test\n"
    "leak.png,dog,,\nkept.png,bird,,test\none.png,dog,bird,\n"
    "two.png,cat,dog|fox,\nthree.png,bird|cat,,\nlast.png,dog,,val\n"
)


@pytest.fixture
def damaged(table, picture):
    picture("leak.png", 1)
    picture("kept.png", 1)
    for name in ("one.png", "two.png", "three.png"):
        picture(name, 2)
    csv = table(DAMAGED)
    (csv.parent / "gone.png").unlink()
    (csv.parent / "bad.png").write_bytes(b"bad")
    return csv


def cleaned_copy(csv, out, merge=False, labels=None):
    tables = read(csv, labels=labels)
    cleaned = clean(tables, check(tables), merge=merge)
    write_table(cleaned.tables, out)
    return cleaned


def known(tables):
    """{split: {item: (positives, negatives)}} of explicit labels, by first letter."""

    def letters(table, row):
        names = np.array([name[0] for name in table.classes])
        return tuple("".join(names[row == value]) for value in (1, -1))

    return {
        split: {
            item: letters(table, row) for item, row in zip(table.items, table.labels, strict=True)
        }
        for split, table in tables.items()
    }


def test_the_cleaned_copy_has_no_errors(damaged):
    before = damaged.read_bytes()
    assert set(kinds(check(read(damaged)))) == {"missing", "unreadable", "leak", "contradiction"}
    cleaned = cleaned_copy(damaged, damaged.parent / "clean.csv")

    assert cleaned.removed == {"missing": 1, "unreadable": 1, "leak": 1}
    assert (cleaned.united, cleaned.unknown, cleaned.unsettled) == (0, 2, 0)
    tables = read(damaged.parent / "clean.csv")
    assert check(tables).errors == []
    assert known(tables) == {
        "train": {
            "ok.png": ("d", "c"),
            "one.png": ("", ""),
            "two.png": ("c", "f"),
            "three.png": ("c", ""),
        },
        "test": {"kept.png": ("b", "")},
        "val": {"last.png": ("d", "")},
    }
    assert damaged.read_bytes() == before


def test_copies_are_merged_on_request(damaged):
    cleaned = cleaned_copy(damaged, damaged.parent / "clean.csv", merge=True)
    assert (cleaned.united, cleaned.unknown) == (2, 2)
    tables = read(damaged.parent / "clean.csv")
    assert known(tables)["train"] == {"ok.png": ("d", "c"), "one.png": ("c", "f")}
    assert check(tables).copies == []


def test_complete_labels_are_merged_but_never_unknown(damaged):
    out = damaged.parent / "one.csv"
    assert cleaned_copy(damaged, out, labels="complete").unsettled == 1
    assert "negative" in out.read_text().splitlines()[0] and ",cat,," in out.read_text()
    out = damaged.parent / "two.csv"
    cleaned = cleaned_copy(damaged, out, merge=True, labels="complete")
    assert (cleaned.united, cleaned.unknown, cleaned.unsettled) == (2, 0, 0)
    tables = read(out, labels="complete")
    assert known(tables)["train"] == {"ok.png": ("d", "bc"), "one.png": ("bcd", "")}
    assert check(tables).errors == []


def test_rows_with_different_paths_of_one_file_are_merged(write, picture):
    for shade, name in enumerate(("a.png", "b.png", "in/d.png")):
        picture(name, shade)
    csv = write("image,label,negative\na.png,x,z\nb.png,x,\n./a.png,y,\nin//d.png,x,y\n")
    csv.write_text(csv.read_text() + f"{csv.parent}/in/d.png,,x\n")
    done = cleaned_copy(csv, csv.parent / "clean.csv")
    assert (done.united, done.unknown, len(done.tables["train"])) == (2, 1, 3)
    tables = read(csv.parent / "clean.csv")
    expected = {"a.png": ("xy", "z"), "b.png": ("x", ""), "in/d.png": ("", "y")}
    assert known(tables)["train"] == expected
    done = cleaned_copy(csv, csv.parent / "complete.csv", labels="complete")
    assert (done.united, done.unsettled, len(done.tables["train"])) == (2, 0, 3)


def test_only_leaks_into_train_and_val_are_removed(table, picture):
    for name in ("a.png", "b.png", "c.png", "d.png"):
        picture(name, 1)
    csv = table(
        "image,label,split\na.png,x,train\nb.png,x,val\nc.png,x,test\n"
        "d.png,y,test\ne.png,y,\nf.png,y,\n"
    )
    cleaned = cleaned_copy(csv, csv.parent / "clean.csv")
    expected = {"train": ["e.png", "f.png"], "test": ["c.png", "d.png"]}
    assert splits(cleaned.tables) == expected


def test_paths_are_relative_to_the_copy(table, monkeypatch):
    csv = table("image,label\nin/a.png,x\nin/b.png,x\nin/c.png,x\n", "data/my.csv")
    folder = csv.parent.parent
    monkeypatch.chdir(folder)
    for out in ("data/same.csv", "above.csv", "data/in/below.csv", "new/else.csv"):
        path = folder / out if out == "above.csv" else Path(out)
        cleaned_copy(Path("data/my.csv"), path)
        assert check(read(path)).errors == [] and len(train(path)) == 3
    assert train("data/same.csv").items[0] == "in/a.png"
    assert train("above.csv").items[0] == "data/in/a.png"
    assert train("new/else.csv").items[0] == str(folder / "data/in/a.png")


def test_names_with_commas_quotes_and_newlines_survive(table, write, picture):
    picture("a, b.png", 1)
    picture("ü\n.png", 2)
    csv = write('image,label,negative\n"a, b.png","say ""x"", y",é\n"ü\n.png",é,\n')
    cleaned_copy(csv, csv.parent / "clean.csv")
    assert known(read(csv.parent / "clean.csv")) == known(read(csv))


@pytest.mark.parametrize("existing", ["my.csv", "link.csv", "folder.csv"])
def test_nothing_is_replaced(table, existing):
    csv = table("image,label\na.png,x\nb.png,x\nc.png,x\n")
    (csv.parent / "link.csv").symlink_to("nowhere")
    (csv.parent / "folder.csv").mkdir()
    before = csv.read_bytes()
    with pytest.raises(UserError, match="already there"):
        cleaned_copy(csv, csv.parent / existing)
    assert csv.read_bytes() == before and (csv.parent / "link.csv").is_symlink()


@pytest.mark.parametrize(
    ("item", "name", "message"),
    [("a.png", "a|b", r"contains '\|'"), ("a.png ", "x", "ends with a space")],
)
def test_values_that_a_csv_cannot_hold_are_refused(tmp_path, item, name, message):
    tables = {"train": LabelTable([item], [name], np.ones((1, 1), np.int8), root=tmp_path)}
    with refused(message):
        write_table(tables, tmp_path / "clean.csv")
    assert not list(tmp_path.iterdir())


def test_an_empty_copy_is_not_written(write):
    csv = write("image,label\na.png,x\nb.png,x\n")
    with refused("no row with a label is left"):
        cleaned_copy(csv, csv.parent / "clean.csv")
    assert not (csv.parent / "clean.csv").exists()
