"""Output of `spml stats` for fixed counts, line by line."""

import re

import numpy as np
import pytest
from rich.console import Console

from spml.cli.output.stats import print_statistics
from spml.data.statistics import Statistics

COUNTS = {
    "name": "mine.csv",
    "version": "2012",
    "classes": ["cat", "dog"],
    "images": {"train": 10, "val": 2, "test": 3},
    "seen": np.array([4, 6]),
    "negatives": np.array([0, 0]),
    "missing": np.array([4, 0]),
    "unknown": 10,
    "cooccurrence": np.array([[8, 6], [6, 6]]),
    "observation": {"model": "uniform", "positives": 1},
}


@pytest.fixture
def lines(capsys):
    def printed(**other):
        print_statistics(Console(width=160), Statistics(**COUNTS | other))
        return [
            re.split(r"\s{2,}", line.strip())
            for line in capsys.readouterr().out.splitlines()
            if line.strip(" ─")
        ]

    return printed


def test_complete_labels(lines):
    assert lines() == [
        ["mine.csv (2012)"],
        ["observed labels drawn from complete ones: uniform (positives 1)"],
        ["this data"],
        ["classes", "2"],
        ["images, training", "10"],
        ["images, validation", "2"],
        ["images, test", "3"],
        ["labels per training image, positive", "1.40"],
        ["labels per training image, negative", "0.60"],
        ["labels per training image, known positive", "1.00"],
        ["labels per training image, known negative", "0.00"],
        ["labels per training image, unknown", "1.00"],
        [
            "4 of 10 unlabelled entries (40.0 %) are positive: Remark 1's constant is 0.4000, "
            "and b(0) by Assumption 1 is -0.405."
        ],
        ["positives of 2 classes", "seen", "missing", "total"],
        ["cat", "4", "4", "8"],
        ["dog", "6", "0", "6"],
        ["pairs, most frequent first", "items", "lift"],
        ["cat + dog", "6", "1.25"],
        ["pairs of at least 5 items, highest lift first", "items", "lift"],
        ["cat + dog", "6", "1.25"],
    ]


def test_observed_labels(lines):
    printed = lines(version="", missing=None, negatives=np.array([0, 1]))
    assert printed[0] == ["mine.csv"] and not any("image, positive" in line[0] for line in printed)
    assert [
        "The pairs are those among the known positives; "
        "how often classes truly co-occur is not known."
    ] in printed
    at = printed.index(["positives of 2 classes", "known positives", "known negatives"])
    assert printed[at + 1 : at + 3] == [["dog", "6", "1"], ["cat", "4", "0"]]


def test_missing_counts_are_explained(lines):
    assert lines(unknown=0)[12] == ["Every entry is labelled."]
    assert lines(cooccurrence=None)[-1] == [
        "Pairs of classes are not counted: no item has two known positives."
    ]
    assert lines(missing=np.zeros(2, int))[12][0].endswith(
        "0 of 10 unlabelled entries (0.0 %) are positive."
    )
