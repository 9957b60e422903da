"""Class names that may be slips of one another."""

import numpy as np
import pytest

from spml.data import LabelTable, near_duplicates
from spml.data.names import suggestion


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
        ({"horse": 50, "horze": 2}, [("horze", "horse")]),
        ({"giraffe": 50, "griaffe": 2}, [("griaffe", "giraffe")]),
        ({"stone": 50, "tones": 2}, []),
        ({"trail": 50, "etail": 2}, []),
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


def test_suggestions():
    assert suggestion("DGO", ["cat", "Dog"]) == "; did you mean 'Dog'?"
    assert suggestion("zebra", ["cat", "dog"]) == ""
