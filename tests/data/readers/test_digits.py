"""The embedded scenes: the same bytes everywhere, and the statistics they were given."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from spml.data import read
from spml.data.readers import digits
from tests.data.conftest import train


@pytest.fixture(scope="module")
def scenes():
    return read("digits")


def digest(table):
    assert table.x is not None
    return [hashlib.sha256(array.tobytes()).hexdigest()[:16] for array in (table.x, table.labels)]


@pytest.mark.parametrize(
    ("split", "recorded"),
    [
        ("train", ["4ea91d971f85db4e", "ea452004c3f548f9"]),
        ("val", ["a24e46ec0581a1dd", "3f947af5d4ccf0e9"]),
        ("test", ["60391d16f37ce080", "9d10c5d571fad066"]),
    ],
)
def test_bytes_are_recorded(scenes, split, recorded):
    assert digest(scenes[split]) == recorded


def test_sizes_and_types(scenes):
    expected = {"train": 3000, "val": 750, "test": 2000}
    assert {split: len(table) for split, table in scenes.items()} == expected
    for split, table in scenes.items():
        assert table.x.dtype == np.uint8
        assert table.x.shape == (len(table), 3, 40, 40)
        assert set(np.unique(table.labels)) == {1, -1}
        assert table.items[0] == f"{split}/00000"


def test_the_other_regime():
    scenes = replace(digits.SETTINGS["digits-many"], sizes=(1, 300, 1))
    counts = (digits.read_digits(scenes)["val"].labels == 1).sum(axis=1)
    assert (counts.min(), counts.max()) == (2, 5)


def test_observed_digits_hold_positives_alone(monkeypatch):
    few = replace(digits.SETTINGS["digits"], sizes=(30, 1, 1))
    monkeypatch.setitem(digits.SETTINGS, "digits", few)
    observed = train("digits", labels="observed")
    np.testing.assert_array_equal(observed.labels, np.where(train("digits").labels == 1, 1, 0))
