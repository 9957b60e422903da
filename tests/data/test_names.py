"""Class names that may be slips of one another."""

import numpy as np
import pytest

from spml.data import LabelTable, near_duplicates
from spml.data.names import joined_names, suggestion


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
        ({"cat": 50, "car": 40}, []),
        ({"bird": 50, "boat": 1}, []),
        ({"class1": 50, "class2": 1}, []),
        ({"class1": 50, "class12": 1}, []),
        ({"a": 50, "b": 1}, []),
        ({"horse": 100, "hourse": 1, "house": 90}, [("hourse", "horse"), ("hourse", "house")]),
    ],
)
def test_near_names(positives, pairs):
    found = near_duplicates(table_with(**positives))
    assert [(pair.name, pair.other) for pair in found] == pairs


def test_numbers_of_positives_come_along():
    assert near_duplicates(table_with(dog=50, dgo=2)) == [("dgo", 2, "dog", 50)]


def test_ten_thousand_classes():
    names = [f"name {i:05d}" for i in range(10_000)]
    assert near_duplicates(LabelTable(["a"], names, np.ones((1, 10_000), np.int8))) == []


def test_names_joined_by_another_sign_than_the_bar():
    classes = ["Dog", "cat", "dog, cat", "dog/cat", "salt & pepper", "cat,", "dog"]
    assert joined_names(classes) == [("dog, cat", ["Dog", "cat"]), ("dog/cat", ["Dog", "cat"])]


def test_suggestions():
    assert suggestion("DGO", ["cat", "Dog"]) == "; did you mean 'Dog'?"
    assert suggestion("zebra", ["cat", "dog"]) == ""
