"""CSV files: both forms, every malformed case with its line, and fuzz."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spml.data import read
from tests.data.conftest import FUZZ, refused, rows, splits, train

SPLIT, NEGATIVE = "image,label,split\n", "image,label,negative\n"
WIDE = "image,cat,dog\n"


def test_long_form(write):
    path = write("image,label\nb.jpg,dog|cat\na.jpg,bird\n/x/c.jpg,dog\n")
    tables = read(path)

    assert list(tables) == ["train"]
    table = tables["train"]
    assert table.classes == ["bird", "cat", "dog"]
    assert rows(table) == {"b.jpg": [0, 1, 1], "a.jpg": [1, 0, 0], "/x/c.jpg": [0, 0, 1]}
    assert table.root == path.parent


def test_rows_of_one_image_are_merged(write):
    text = "image,label,negative\na,dog,\na,cat|dog,bird\nb,,\nb,bird,dog|cat\nc,,\n"
    table = train(write(text))
    assert table.classes == ["bird", "cat", "dog"]
    assert rows(table) == {"a": [-1, 1, 1], "b": [1, -1, -1], "c": [0, 0, 0]}
    assert table.sparse.counts(1).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "classes", "expected"),
    [
        ("id,image,label,width\n1,a,dog,640\n", ["dog"], {"a": [1]}),
        ('image;"a,b,c";d\nx;1;0\n', ["a,b,c", "d"], {"x": [1, 0]}),
        ("sep=;\r\nimage;label\na;dog\n", ["dog"], {"a": [1]}),
        ("\ufeffSEP=;\nimage;label\na;dog\n", ["dog"], {"a": [1]}),
        ("image,label\na,1\nb,0\n", ["0", "1"], {"a": [0, 1], "b": [1, 0]}),
        ("image,label,id\na,1,7\nb,0,8\n", ["0", "1"], {"a": [0, 1], "b": [1, 0]}),
        ("image,label,negative\na,1,0\n", ["0", "1"], {"a": [-1, 1]}),
    ],
    ids=["other columns", "names", "sep", "SEP", "numbers", "numbers and ids", "negatives"],
)
def test_unusual_tables(write, text, classes, expected):
    table = train(write(text))
    assert (table.classes, rows(table)) == (classes, expected)


def test_paths_from_windows_have_slashes_unless_there_is_such_a_file(write, tmp_path):
    (tmp_path / "odd\\c.jpg").touch()
    text = "image;label\r\nmy photos\\a.jpg;dog\r\nmy photos/a.jpg;cat\r\nodd\\c.jpg;dog\r\n"
    assert rows(train(write(text))) == {"my photos/a.jpg": [1, 1], "odd\\c.jpg": [0, 1]}
    wide = train(write("image,dog\na\\b.jpg,1\n", "pictures/wide.csv"), tmp_path)
    assert rows(wide) == {"a/b.jpg": [1]}


def test_the_first_contradiction_is_named(write):
    path = write("image,label,negative\na,dog,\nb,cat,\nc,dog,\nb,,cat\na,,dog\nc,,dog\n")
    with refused(r"line 5: 'cat' .* for 'b' \(see line 3\)"):
        read(path)


def test_complete_labels_make_absence_negative(write):
    table = train(write("image,label,negative\na,dog,cat\nb,cat,\nc,,\n"), labels="complete")
    assert rows(table) == {"a": [-1, 1], "b": [1, -1], "c": [-1, -1]}
    assert (table.sparse.fill, table.sparse.values.tolist()) == (-1, [1, 1])


def test_splits(write):
    tables = read(write(f"{SPLIT}a,dog,test\nb,cat,train\nc,dog,VAL\nd,dog,\na,cat,test\n"))
    assert splits(tables) == {"train": ["b", "d"], "val": ["c"], "test": ["a"]}
    assert rows(tables["test"]) == {"a": [1, 1]}


def test_wide_form(write):
    path = write("image,zebra,split,ant\na,1,train,0\nb,-1,,1.0\nc,, val ,-1\nd,1,test,0.0\n")
    tables = read(path)
    assert tables["train"].classes == ["zebra", "ant"]
    assert rows(tables["train"]) == {"a": [1, 0], "b": [-1, 1]}
    assert rows(tables["val"]) == {"c": [0, -1]}
    assert rows(read(path, labels="complete")["val"]) == {"c": [-1, -1]}


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_dialects(write, bom, separator, end):
    lines = ["image,label,negative", '"a, b; c.jpg",dog,"hot dog"', "", "é.jpg,cat,", ",,"]
    text = end.join(lines).replace(",", separator).replace('"a' + separator, '"a,')
    table = train(write(bom + text.encode()))
    assert list(table.items) == ["a, b; c.jpg", "é.jpg"]
    assert table.classes == ["cat", "dog", "hot dog"]


@pytest.mark.parametrize(
    "text",
    ["sep=;\nimage;label\n\na;dog\nb;dog;cat\n", 'image,label\n"a\nb",dog\n\nc,dog,cat\n'],
    ids=["sep", "a cell over two lines"],
)
def test_line_numbers_count_every_line(write, text):
    with refused("my.csv, line 5: 3 cells, the header has 2; quote"):
        read(write(text))


def test_a_class_called_label_among_class_columns_is_reported(write):
    path = write("image,cat,label,split\na.jpg,1,0,train\nb.jpg,,1,train\n")
    with refused("line 1: column 'label' holds nothing but 1, 0 and -1, and so does 'cat'"):
        read(path)
    assert train(path, classes=write("0\n1\n", "names.txt")).classes == ["0", "1"]


def test_class_list_fixes_the_order(write):
    path = write("image,label\na,dog\nb,cat\n")
    names = write("\ufeffdog\n\n cat \nbird\n", "classes.txt")
    for classes in (names, str(names), ["dog", "cat", "bird"]):
        table = train(path, classes=classes)
        assert table.classes == ["dog", "cat", "bird"]
        assert rows(table) == {"a": [1, 0, 0], "b": [0, 1, 0]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty file.*image,label"),
        ("image,label\n", "no rows.*give at least one"),
        (
            "file,label\na,dog\n",
            "line 1.*no column 'image'.*'file', 'label'.*rename the column of paths",
        ),
        ("image\na\n", "line 1.*no column 'label'.*add a column"),
        ("image,image,label\na,b,dog\n", "line 1.*'image' appears twice.*remove one"),
        ("image,cat,cat\na,1,0\n", "line 1.*'cat' appears twice.*one named column"),
        (",image,cat\n0,a,1\n", "line 1.*column 1 has no name"),
        ("image,label,spilt\na,dog,val\n", "line 1.*'spilt' is not known.*did you mean 'split'"),
        ("image,label,negatives\na,dog,cat\n", "line 1.*'negatives'.*did you mean 'negative'"),
        ("image,label\na,dog\n ,dog\n", "line 3.*image cell is empty.*remove the row"),
        ("image,label\na,dog\nb\n", "line 3.*1 cells, the header has 2.*fill the row up"),
        ("image,label\na,dog,cat\n", "line 2.*3 cells, the header has 2.*quote a cell"),
        (f"{SPLIT}a,dog,trian\n", "line 2.*'trian'.*train, val or test.*did you mean 'train'"),
        (f"{SPLIT}a,dog,validation\n", "line 2.*did you mean 'val'"),
        (b"image,label\na,dog\nb,caf\xe9\n", "line 3.*0xe9 is not UTF-8.*save the file as UTF-8"),
        (b"image,label\na,dog\nb,c\0t\n", "line 3.*NUL.*UTF-8"),
        ("image,label\na,dog\n".encode("utf-16"), "line 1.*UTF-8"),
        ("image,label\na,\nb,\n", "no row has a label.*give at least one"),
        (f"{WIDE}a,1,0\nb,yes,0\n", "line 3.*'yes' in column 'cat'.*1, 0, -1 or empty.*'label'"),
        ('image,label\n"a,dog\nb,cat\n', "line 2.*check the quotes"),
        ('image,label\n"a"b,dog\n', "line 2.*check the quotes"),
        (
            "image,tags\na,1\n",
            "line 1.*'tags' is also the name of a column of predictions.*class list",
        ),
        ("image,a|b\na,1\n", r"line 1.*'a\|b' contains '\|'.*class list"),
        (
            "image,label\na,dog\nb,image\n",
            "line 3.*'image' is also the name of a column of predictions",
        ),
        (f"{NEGATIVE}a,,cat\nb,cat,\na,cat,\n", "line 4.*'cat' is both.*'a'.*line 2.*keep one"),
        (f"{SPLIT}a,x,train\nb,y,val\na,x,test\n", "line 4.*'a'.*'test'.*'train' at line 2.*one"),
    ],
)
def test_malformed_files(write, content, message):
    with refused(f"my.csv.*{message}") as caught:
        read(write(content))
    assert "\n" not in str(caught.value)


def test_an_overlong_header_is_refused(write):
    with refused(r"my\.csv, line 1: field larger than field limit .* of the header"):
        read(write(f"image,{'x' * 140_000}\na,1\n"))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("dog\nbird\n", r"my.csv, line 3.*'Dgo'.*classes.txt.*did you mean 'dog'\?"),
        ("bird\n", "my.csv, line 2.*'dog'.*add it there"),
        ("dog\ncat\ndog\n", "classes.txt, line 3.*'dog' appears twice.*remove one"),
        ("a\tdog\nb\tdog\n", "classes.txt, line 2.*'dog' appears twice"),
        ("dog\tHund\ndog\tKatze\n", "classes.txt, line 2.*'dog' appears twice"),
        ("\n\n", "classes.txt.*no class names"),
        (b"dog\n\xff\n", "classes.txt, line 2.*UTF-8"),
        ("dog\ntags\n", "classes.txt, line 2.*'tags' is also the name of a column of predictions"),
        ("dog\tdog|hound\n", r"classes.txt, line 1.*'dog\|hound' contains '\|'"),
    ],
)
def test_class_lists_that_do_not_fit(write, classes, message):
    path = write("image,label\na,dog\nb,Dgo\n")
    with refused(message):
        read(path, classes=write(classes, "classes.txt"))


def test_a_display_name_may_replace_a_reserved_name(write):
    names = write("tags\tlabels\na|b\ta or b\nImage\n", "classes.txt")
    table = train(write("image,tags,a|b\nx,1,0\ny,0,1\n"), classes=names)
    assert table.classes == ["labels", "a or b", "Image"]
    expected = {"x": [1, 0, 0], "y": [0, 1, 0]}
    assert rows(table) == expected


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends(write, end):
    path = write(end.join([b"\xef\xbb\xbfimage,label", b'"a",dog', "b,caf\xe9".encode(), b"", b""]))
    table = train(path, classes=write(end.join([b"dog", "caf\xe9".encode()]), "classes.txt"))
    assert rows(table) == {"a": [1, 0], "b": [0, 1]} and table.where(1).endswith("my.csv, line 3: ")
    with refused(r"my.csv, line 3: byte 0xe9 is not UTF-8"):
        read(write(end.join([b"image,label", b"a,dog", b"b,caf\xe9", b""])))


CHARACTERS = st.characters(codec="utf-8", exclude_characters='|"', exclude_categories=["Z", "Cc"])
NAMES = st.text(CHARACTERS, min_size=1, max_size=6).filter(
    lambda name: name not in ("image", "tags")
)

PATHS = NAMES.map(lambda name: name.replace("\\", "/"))  # backslashes are tested above


@FUZZ
@given(st.dictionaries(PATHS, st.sets(NAMES, min_size=1, max_size=4), min_size=1, max_size=8))
def test_a_written_table_is_read_back(tmp_path: Path, labels):
    path = tmp_path / "written.csv"
    lines = [f'"{image}","{"|".join(sorted(names))}"' for image, names in labels.items()]
    path.write_text("image,label\n" + "\n".join(lines), encoding="utf-8")
    table = train(path)

    assert list(table.items) == list(labels)
    assert table.classes == sorted(set().union(*labels.values()))
    expected = [[int(name in names) for name in table.classes] for names in labels.values()]
    np.testing.assert_array_equal(table.labels, expected)
