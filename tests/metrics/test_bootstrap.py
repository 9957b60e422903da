"""Resampled mAP against the metric on the resampled items, and paired comparison."""

import numpy as np
import pytest
from scipy import stats

from spml.metrics import bootstrap, mean_average_precision
from spml.metrics.bootstrap import Measured, compare, resampled_map


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


def row(figures, maps, draws=None):
    """A row with seeds 0, 1, ... unless the seeds of each draw are given."""
    keys = [(0, seed) for seed in range(len(figures))] if draws is None else draws
    return [Measured(*key, figure, m) for key, figure, m in zip(keys, figures, maps, strict=True)]


def test_pairing_cancels_effects_common_to_both():
    rng = np.random.default_rng(0)
    images = rng.normal(0, 5, 1000)
    own, other = images + 1 + rng.normal(0, 0.1, 1000), images
    base = row([60.0, 60.0], [other, other])
    sure = compare(row([61.0, 61.0], [own, own]), base)
    assert sure.difference == 1.0
    assert 0.5 < sure.low < sure.high < 1.5
    assert sure.p < 0.001 and sure.sign == 1
    unsure = compare(row([61.0, 61.0], [rng.permutation(other)] * 2), base)
    assert unsure.low < 0 < unsure.high and unsure.p > 0.5 and unsure.sign == 0


def test_the_interval_of_one_seed_covers_the_images_alone_and_gives_no_verdict():
    images = np.random.default_rng(0).normal(0, 2, 1000)
    one = compare(row([50.0], [images]), row([40.0], [np.zeros(1000)]))
    assert one.high - one.difference == pytest.approx(1.96 * images.std(ddof=1), rel=1e-4)
    assert (one.p, one.sign, one.seeds, one.draws) == (None, 0, 1, 1) and one.low > 0


def test_without_spread_over_images_the_interval_is_that_of_a_paired_t_test():
    own, other = [50.0, 51.0, 53.0], [49.0, 51.5, 50.0]
    seen = compare(row(own, np.zeros((3, 9))), row(other, np.zeros((3, 9))))
    expected = stats.ttest_rel(own, other)
    low, high = expected.confidence_interval(0.95)
    assert (seen.low, seen.high, seen.p) == pytest.approx((low, high, expected.pvalue))
    assert seen.difference == pytest.approx(np.mean(own) - np.mean(other))
    same = compare(row(own, np.zeros((3, 9))), row(own, np.zeros((3, 9))))
    assert (same.low, same.high, same.p, same.sign) == (0, 0, 1, 0)


def test_images_and_seeds_add_up_and_what_resampling_adds_to_each_run_counts_once():
    rng = np.random.default_rng(1)
    shared, alone = rng.normal(0, 0.3, 2000), rng.normal(0, 0.5, (4, 2000))
    figures, zeros = np.array([1.0, 2.0, 1.5, 0.5]), [np.zeros(2000)] * 4
    seen = compare(row(figures, shared + alone), row([0.0] * 4, zeros))
    seeds, images = figures.var(ddof=1) / 4, 0.3**2
    freedom = (seeds + images) ** 2 / (seeds**2 / 3)
    reach = stats.t.ppf(0.975, freedom) * np.sqrt(seeds + images)
    assert seen.high - seen.difference == pytest.approx(reach, rel=0.05)
    equal = compare(row([1.0] * 4, shared + alone), row([0.0] * 4, zeros))
    least = 1.96 * (shared + alone).mean(axis=0).std(ddof=1)
    assert equal.high - equal.difference == pytest.approx(least, rel=0.01)


def test_draws_widen_the_interval_as_seeds_do():
    keys = [(draw, seed) for draw in range(3) for seed in range(3)]
    zeros = np.zeros((9, 5))
    gaps = np.array([1.0, 1.1, 0.9, 2.0, 2.1, 1.9, 3.0, 3.1, 2.9])
    seen = compare(row(gaps, zeros, keys), row(np.zeros(9), zeros, keys))
    assert (seen.seeds, seen.draws, seen.difference) == (9, 3, pytest.approx(2.0))
    draws, seeds = np.var([1, 2, 3], ddof=1) / 3, np.var([2, 2.1, 1.9], ddof=1) / 3
    freedom = (draws + seeds) ** 2 / (draws**2 / 2 + seeds**2 / 2)
    reach = stats.t.ppf(0.975, freedom) * np.sqrt(draws + seeds)
    assert seen.high - seen.difference == pytest.approx(reach)
    assert compare(row(gaps[:3], zeros[:3]), row(np.zeros(3), zeros[:3])).sign == 1


def test_runs_with_the_same_draw_and_seed_are_paired_or_all_in_order():
    zeros = np.zeros((2, 5))
    own = row([3.0, 9.0], zeros, [(0, 1), (0, 2)])
    shared = compare(own, row([8.0, 1.0], zeros, [(0, 2), (0, 3)]))
    assert (shared.difference, shared.seeds) == (1.0, 1)
    apart = compare(own, row([2.0, 7.0], zeros, [(1, 1), (1, 2)]))
    assert (apart.difference, apart.seeds) == (1.5, 2)
