"""Resampled mAP against the metric on the resampled items, and paired comparison."""

import numpy as np
import pytest

from spml.metrics import bootstrap, mean_average_precision
from spml.metrics.bootstrap import compare, resampled_map


def data(items=60, classes=4, seed=0, steps=1):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=(items, classes)), steps)
    labels = rng.integers(-1, 2, (items, classes)).astype(np.int8)
    labels[:, -1] = -1  # a class without positives
    labels[0, 0] = 1
    return scores, labels


@pytest.mark.parametrize("steps", [0, 1, 8])  # many ties, some, none
def test_resampled_map_equals_the_metric_on_resampled_items(steps):
    scores, labels = data(steps=steps)
    values = resampled_map(scores, labels, 25, seed=7)
    assert len(values) == 25
    rng = np.random.RandomState(7)
    for value in values:
        rows = rng.randint(len(scores), size=len(scores))
        expected = 100 * mean_average_precision(scores[rows], labels[rows])
        assert value == pytest.approx(expected, abs=1e-4)


def test_resampled_map_does_not_depend_on_the_block_size(monkeypatch):
    scores, labels = data()
    whole = resampled_map(scores, labels, 10)
    monkeypatch.setattr(bootstrap, "BLOCK", 3 * len(scores))
    assert np.array_equal(resampled_map(scores, labels, 10), whole)


def test_a_resample_without_positives_counts_as_the_metric_does():
    scores, labels = np.arange(8.0)[:, None], -np.ones((8, 1), np.int8)
    labels[3] = 1
    values, rng = resampled_map(scores, labels, 50, seed=1), np.random.RandomState(1)
    # how often the one positive is drawn
    times = np.array([(rng.randint(8, size=8) == 3).sum() for _ in range(50)])
    assert {0, 1, 2} <= set(times.tolist()) and ((values > 0) == (times > 0)).all()


def test_pairing_cancels_effects_common_to_both():
    rng = np.random.default_rng(0)
    images = rng.normal(0, 5, 1000)
    own, other = images + 1 + rng.normal(0, 0.1, 1000), images
    sure = compare([own], [other], [61.0], [60.0])
    assert sure.difference == 1.0
    assert 0.5 < sure.low < sure.high < 1.5
    assert sure.p == pytest.approx(2 / 1001)
    unsure = compare([own], [rng.permutation(other)], [61.0], [60.0])
    assert unsure.low < 0 < unsure.high and unsure.p > 0.5


def test_the_interval_holds_95_percent_of_the_resamples():
    comparison = compare([np.arange(1001.0)], [np.zeros(1001)], [1], [0])
    assert (comparison.low, comparison.high) == (25, 975)


def test_seeds_are_averaged_before_they_are_compared():
    own, other = np.zeros((2, 100)), np.array([np.full(100, 3.0), np.full(100, -1.0)])
    both = compare(own, other, [50, 50], [53, 49])
    assert (both.difference, both.low, both.high, both.seeds) == (-1.0, -1.0, -1.0, 2)
    assert compare(own, own, [1, 1], [1, 1]).p == 1.0
