"""Class names: the forms of a class list, and names that may be misspellings of each other."""

import numpy as np
import pytest

from spml.data import LabelTable, near_duplicates
from spml.data.names import class_list, doubtful_names, suggestion
from tests.data.conftest import refused

NONE = "the names given: no class names"
COMMAS = "give names joined by commas"


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Names from a text, in a folder with a class list and a folder named like a class."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("dog\nc\tcat\n")
    (tmp_path / "dog").mkdir()
    return lambda text, known=(): list(class_list(text, known).display.values())


def test_text_is_a_file_of_names_or_names_joined_by_commas(names, tmp_path):
    assert names("list.txt") == names(str(tmp_path / "list.txt")) == ["dog", "cat"]
    assert names("dog") == ["dog"] and names(" dog ,, grey cat") == ["dog", "grey cat"]
    assert names("dog,list.txt") == ["dog", "list.txt"]
    long = [f"class {i}" for i in range(2000)]
    assert names(",".join(long)) == long


def test_a_known_name_stands_for_itself(names):
    assert names("a, b", ["a, b", "c"]) == ["a, b"] and names("a, b", ["a", "b"]) == ["a", "b"]
    assert names("list.txt", ["list.txt"]) == ["list.txt"]
    assert names("tv/monitor", ["tv/monitor"]) == ["tv/monitor"]
    assert names("tv/monitr", ["tv/monitor"]) == ["tv/monitr"]  # the caller adds the suggestion


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gone.txt", f"gone.txt: no such file of class names; check the path, or {COMMAS}"),
        ("lists/mine", r"lists/mine: no such file of class names"),
        ("dog,cat,dog", r"the names given: class 'dog' appears twice; remove one"),
        ("dog,a|b", r"the names given: class 'a\|b' contains"),
        (" , ", f"{NONE}; give one a line of a file, or some joined by commas"),
        ("", NONE),
    ],
)
def test_text_that_gives_no_list(names, text, message):
    with refused(message):
        names(text)


def table_with(**positives):
    names = [name.replace("_", " ") for name in positives]
    counts = list(positives.values())
    labels = np.zeros((max(counts), len(names)), np.int8)
    for column, count in enumerate(counts):
        labels[:count, column] = 1
    return LabelTable([str(i) for i in range(len(labels))], names, labels)


@pytest.mark.parametrize(
    ("positives", "pairs"),
    [
        ({"dog": 50, "dgo": 2}, [("dgo", "dog")]),
        ({"dog": 50, "dogs": 5}, [("dogs", "dog")]),
        ({"giraffe": 3, "girafe": 1}, [("girafe", "giraffe")]),
        ({"Dog": 50, "dog": 50}, [("Dog", "dog")]),
        ({"hotdog": 9, "hot_dog": 8}, [("hot dog", "hotdog")]),
        ({"V\u00f6gel": 50, "Vo\u0308gel": 40}, [("Vo\u0308gel", "V\u00f6gel")]),
        ({"horse": 50, "horze": 2}, [("horze", "horse")]),
        ({"giraffe": 50, "griaffe": 2}, [("griaffe", "giraffe")]),
        ({"cat": 50, "car": 40}, []),
        ({"bird": 50, "boat": 1}, []),
        ({"class1": 50, "class2": 1}, []),
        ({"class1": 50, "class12": 1}, []),
        ({"a": 50, "b": 1}, []),
        ({"\N{DOG FACE}": 1, "\N{CAT FACE}": 1, "+": 1, "-": 1}, []),  # no letters
        ({"horse": 100, "hourse": 1, "house": 90}, [("hourse", "horse"), ("hourse", "house")]),
    ],
)
def test_near_names(positives, pairs):
    counts = {name.replace("_", " "): count for name, count in positives.items()}
    expected = [(name, counts[name], other, counts[other]) for name, other in pairs]
    assert near_duplicates(table_with(**positives)) == expected


def test_ten_thousand_classes():
    names = [f"name {i:05d}" for i in range(10_000)]
    assert near_duplicates(LabelTable(["a"], names, np.ones((1, 10_000), np.int8))) == []


LIST, LINES = "a list as a program writes it", "several lines; is a quote missing in the file?"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["dog, cat", "dog/cat"], "'Dog' and 'cat' are classes too"),
        (["salt & pepper"], "contains '&'"),
        (["['dog', 'cat']", "['dog']", "[]", '["dog"]', '{"dogs": ["dog",\n "cat"]}'], LIST),
        (["dog\nb.jpg,cat", "hot\r\ndog"], LINES),
        (["cat,", "[sic]", "{dog}", "dog's", "a 'b' c", "hot dog"], None),
    ],
)
def test_doubtful_names(names, reason):
    doubtful = doubtful_names(["Dog", "cat", *names, "dog"])
    assert doubtful == ({} if reason is None else dict.fromkeys(names, reason))


def test_suggestions():
    assert suggestion("DGO", ["cat", "Dog"]) == "; did you mean 'Dog'?"
    assert suggestion("zebra", ["cat", "dog"]) == ""
