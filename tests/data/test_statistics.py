"""Statistics against dense counting, and at the size at which dense counting is out of reach."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spml.data import LabelTable, SparseLabels, load
from spml.data import statistics as module
from spml.data.experiment import Experiment, split
from spml.data.observation import draw
from spml.data.statistics import statistics


def experiment(complete, observed=None, fraction=0.2):
    names = [f"c{i}" for i in range(complete.shape[1])]
    table = LabelTable([str(i) for i in range(len(complete))], names, complete)
    seen = (
        table.with_labels(draw(table.sparse)) if observed is None else table.with_labels(observed)
    )
    return Experiment("x", names, seen, table, *split(len(complete), fraction), None, "complete")


@settings(deadline=None)
@given(
    hnp.arrays(np.int8, (12, 4), elements=st.sampled_from([1, -1])),
    hnp.arrays(np.int8, (12, 4), elements=st.sampled_from([1, 0, -1])),
    st.booleans(),
)
def test_counts_equal_those_of_dense_tables(y, s, drawn):
    given_ = experiment(y, None if drawn else s)
    found = statistics(given_)
    rows = given_.train_rows
    y, s = y[rows] == 1, given_.observed.labels[rows]

    np.testing.assert_array_equal(found.seen, (s == 1).sum(axis=0))
    np.testing.assert_array_equal(found.negatives, (s == -1).sum(axis=0))
    np.testing.assert_array_equal(found.missing, (y & (s == 0)).sum(axis=0))
    np.testing.assert_array_equal(found.together, y.T.astype(int) @ y.astype(int))
    assert found.unknown == (s == 0).sum()
    if found.unknown:
        share = (y & (s == 0)).sum() / (s == 0).sum()
        assert found.constant == share
        assert (
            found.logit is None
            if share in (0, 1)
            else found.logit == pytest.approx(math.log(share / (1 - share)))
        )
    if drawn:
        assert found.positives == pytest.approx(y.sum() / len(rows))
        np.testing.assert_array_equal(found.total, y.sum(axis=0))


def test_pairs():
    labels = np.full((100, 4), -1, np.int8)
    labels[:50, 0] = 1
    labels[:20, 1] = 1  # always with class 0: lift 2
    labels[46:52, 2] = 1  # four times with class 0
    labels[60:68, 3] = labels[60:66, 2] = 1  # 6 times: lift 6 * 100 / (12 * 8)
    pairs = statistics(experiment(labels, fraction=0)).pairs()
    assert [tuple(pair) for pair in pairs["count"]] == [
        ("c0", "c1", 20, 2.0),
        ("c2", "c3", 6, 6.25),
        ("c0", "c2", 4, pytest.approx(4 * 100 / (50 * 12))),
    ]
    assert [(pair.first, pair.second) for pair in pairs["lift"]] == [("c2", "c3"), ("c0", "c1")]


def test_a_pair_that_was_seen_once_is_a_pair_and_one_never_seen_is_none():
    labels = np.array([[1, 1, -1], [1, -1, -1], [-1, -1, 1]], np.int8)
    pairs = statistics(experiment(labels, fraction=0)).pairs()
    assert [tuple(pair) for pair in pairs["count"]] == [("c0", "c1", 1, 1.5)] and pairs[
        "lift"
    ] == []


def test_observed_labels_only(write):
    rows = "".join(f"{i}.jpg,{'ab'[i % 2]},{'b' if i == 0 else ''}\n" for i in range(10))
    found = statistics(load(write("image,label,negative\n" + rows)))
    assert (found.complete, found.missing, found.constant, found.logit, found.together) == (
        False,
        *[None] * 4,
    )
    assert found.pairs() == {} and found.images == {"train": 8, "val": 2, "test": 0}
    told = found.to_json()
    assert told["positives_per_image"] is None and told["known_positives_per_image"] == 1
    assert told["classes"][0]["missing"] is None


def test_observed_pairs_are_counted_if_there_are_any(write):
    found = statistics(load(write("image,label\n" + "".join(f"{i},a|b\n" for i in range(5)))))
    assert found.together.tolist() == [[4, 4], [4, 4]]


def test_json_holds_everything(scenes):
    told = json.loads(json.dumps(statistics(scenes).to_json()))
    assert told["observation"] == {"model": "uniform", "positives": 1, "negatives": 0, "seed": 1200}
    assert told["missing_positives"] == sum(row["missing"] for row in told["classes"])
    assert told["positives_per_image"] + told["negatives_per_image"] == told["num_classes"] == 10
    assert set(told["pairs"]["count"][0]) == {"first", "second", "items", "lift"}


def test_too_many_classes_for_pairs(monkeypatch):
    monkeypatch.setattr(module, "MAX_CLASSES", 3)
    assert statistics(experiment(np.ones((5, 4), np.int8))).together is None


def test_many_rows_and_classes_stay_sparse():
    """100,000 rows of 10,000 classes: dense they would take a gigabyte."""
    rows, classes = 100_000, 10_000
    rng = np.random.default_rng(0)
    columns = np.sort(
        rng.integers(0, classes // 3, (rows, 3)) + np.arange(3) * (classes // 3), axis=1
    )
    indptr = np.arange(rows + 1) * 3
    complete = SparseLabels(
        indptr, columns.ravel().astype(np.int32), np.ones(rows * 3, np.int8), -1, classes
    )
    observed = SparseLabels(
        np.arange(rows + 1), columns[:, 0].astype(np.int32), np.ones(rows, np.int8), 0, classes
    )
    table = LabelTable(range(rows), [str(i) for i in range(classes)], complete)
    found = statistics(
        Experiment(
            "x", table.classes, table.with_labels(observed), table, *split(rows), None, "complete"
        )
    )
    assert (
        found.unknown == 80_000 * (classes - 1)
        and found.missing.sum() == 160_000
        and found.together is None
    )
