"""Statistics against dense counting, and at a size too large for dense counting."""

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
    seen = table.with_labels(draw(table.sparse) if observed is None else observed)
    return Experiment("x", names, seen, table, *split(len(complete), fraction), None, "complete")


@settings(deadline=None)
@given(
    hnp.arrays(np.int8, (12, 4), elements=st.sampled_from([1, -1])),
    hnp.arrays(np.int8, (12, 4), elements=st.sampled_from([1, 0, -1])),
    st.booleans(),
)
def test_counts_equal_those_of_dense_tables(y, s, drawn):
    data = experiment(y, None if drawn else s)
    result = statistics(data)
    rows = data.train_rows
    y, s = y[rows] == 1, data.observed.labels[rows]

    np.testing.assert_array_equal(result.seen, (s == 1).sum(axis=0))
    np.testing.assert_array_equal(result.negatives, (s == -1).sum(axis=0))
    np.testing.assert_array_equal(result.missing, (y & (s == 0)).sum(axis=0))
    np.testing.assert_array_equal(result.cooccurrence, y.T.astype(int) @ y.astype(int))
    assert result.unknown == (s == 0).sum()
    if result.unknown:
        share = (y & (s == 0)).sum() / (s == 0).sum()
        assert result.constant == share
        logit = None if share in (0, 1) else pytest.approx(math.log(share / (1 - share)))
        assert result.logit == logit
    if drawn:
        assert result.positives == pytest.approx(y.sum() / len(rows))
        np.testing.assert_array_equal(result.total, y.sum(axis=0))


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


def test_observed_labels_only(write):
    rows = "".join(f"{i}.jpg,{'ab'[i % 2]},{'b' if i == 0 else ''}\n" for i in range(10))
    result = statistics(load(write("image,label,negative\n" + rows)))
    unknown = (result.missing, result.constant, result.logit, result.cooccurrence)
    assert not result.complete and unknown == (None,) * 4
    assert result.pairs() == {} and result.images == {"train": 8, "val": 2, "test": 0}
    stored = result.to_json()
    assert stored["positives_per_image"] is None and stored["known_positives_per_image"] == 1
    assert stored["classes"][0]["missing"] is None


def test_observed_pairs_are_counted_if_there_are_any(write):
    result = statistics(load(write("image,label\n" + "".join(f"{i},a|b\n" for i in range(5)))))
    assert result.cooccurrence.tolist() == [[4, 4], [4, 4]]


def test_json_holds_everything(scenes):
    stored = json.loads(json.dumps(statistics(scenes).to_json()))
    drawn = {"model": "uniform", "positives": 1, "negatives": 0, "seed": 1200}
    assert stored["observation"] == drawn
    assert stored["missing_positives"] == sum(row["missing"] for row in stored["classes"])
    assert (
        stored["positives_per_image"] + stored["negatives_per_image"] == stored["num_classes"] == 10
    )
    assert set(stored["pairs"]["count"][0]) == {"first", "second", "items", "lift"}


def test_too_many_classes_for_pairs(monkeypatch):
    monkeypatch.setattr(module, "MAX_CLASSES", 3)
    assert statistics(experiment(np.ones((5, 4), np.int8))).cooccurrence is None


def test_many_rows_and_classes_stay_sparse():
    """100,000 rows of 10,000 classes, a gigabyte as a dense table."""
    rows, classes = 100_000, 10_000
    third = classes // 3
    starts = np.random.default_rng(0).integers(0, third, (rows, 3))
    columns = (starts + np.arange(3) * third).astype(np.int32)

    def labels(entries, fill):
        indptr = np.arange(rows + 1) * entries
        values = np.ones(rows * entries, np.int8)
        return SparseLabels(indptr, columns[:, :entries].ravel(), values, fill, classes)

    table = LabelTable(
        [str(i) for i in range(rows)], [str(i) for i in range(classes)], labels(3, -1)
    )
    seen = table.with_labels(labels(1, 0))
    parts = Experiment("x", table.classes, seen, table, *split(rows), None, "complete")
    result = statistics(parts)
    assert result.unknown == 80_000 * (classes - 1)
    assert result.missing.sum() == 160_000
    assert result.cooccurrence is None
