from itertools import islice

import numpy as np
import pytest

from spml import metrics
from spml.use.calibrate.estimates import (
    ESTIMATED,
    Evidence,
    Measure,
    estimate,
    intervals,
    widened,
)
from spml.use.calibrate.fit import logit
from tests.metrics.test_draw import world


def test_complete_labels_give_the_metrics_themselves():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1, (200, 4)).round(1)  # with ties
    truth = np.where(rng.random(logits.shape) < 0.3, 1, -1).astype(np.int8)
    evidence = Evidence.of_complete(logits, truth)
    figures = Measure(evidence.logits, logits >= 0.45)(evidence.chances, np.ones(200))
    tags = metrics.threshold_metrics(logits, truth, threshold=1 / (1 + np.exp(-0.45)))
    assert figures["ap"] == pytest.approx(metrics.average_precision(logits, truth))
    names = {"macro_precision": "CP", "macro_recall": "CR", "macro_f1": "macro_f1"}
    names |= {"micro_precision": "OP", "micro_recall": "OR", "micro_f1": "OF1"}
    for ours, theirs in names.items():
        assert figures[ours] == pytest.approx(getattr(tags, theirs)), ours


def test_items_counted_twice_equal_repeated_items():
    z, y, _ = world(200)
    counts = np.arange(len(z)) % 3
    rows = np.repeat(np.arange(len(z)), counts)
    once = Measure(z, z > 0)(y.astype(float), counts.astype(float))
    again = Measure(z[rows], z[rows] > 0)(y[rows].astype(float), np.ones(len(rows)))
    for name in once:
        assert once[name] == pytest.approx(again[name]), name


def test_estimates_from_single_positives_are_near_the_truth_and_inside_their_ranges():
    z, y, observed = world(3000, seed=4)
    estimates = estimate(z, observed, z > 0)
    truth = Measure(z, z > 0)(y.astype(float), np.ones(len(z)))
    for name in ("map", "positives_per_item", "macro_precision", "macro_recall", "micro_f1"):
        value, low, high = estimates[name]
        assert low <= truth[name] <= high and abs(value - truth[name]) < 0.05, name
    assert estimate(z, observed, z > 0) == estimates
    chances = Evidence.of_observed(z, observed, 2.0).chances
    fixed = Measure(z, None)(chances, np.ones(len(z)))
    assert fixed["positives_per_item"] == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize("positives", [None, 2.0])
def test_chances_in_a_resample_are_near_those_of_a_fit_to_its_items(positives):
    z, _, observed = world(1500)
    evidence = Evidence.of_observed(z, observed, positives)
    off, way = 0.0, 0.0
    for counts, chances in islice(evidence.resamples(0), 3):
        rows = np.repeat(np.arange(len(z)), counts.astype(int))
        fitted = Evidence.of_observed(z[rows], observed[rows], positives).chances
        off += np.abs(chances[rows] - fitted).mean()
        way += np.abs(evidence.chances[rows] - fitted).mean()
        if positives is not None:
            assert chances[rows].sum(axis=1).mean() == pytest.approx(positives, abs=0.01)
    assert off < 0.25 * way


def test_ranges_include_the_error_of_the_model_unless_labels_are_complete():
    z, y, observed = world(1500)
    known = estimate(z, observed, z > 0, 2.0)
    for name, (value, low, high) in estimate(z, observed, z > 0).items():
        assert low <= value <= high and low >= 0 and (high <= 1 or name == "positives_per_item")
        assert known[name][2] - known[name][1] < high - low, f"{name} needs the number of positives"
    complete = Evidence.of_complete(z, np.where(y, 1, -1).astype(np.int8))
    measure, name = Measure(complete.logits, z > 0), "map"
    drawn = [measure(chances, counts) for counts, chances in complete.resamples(0)]
    value = measure(complete.chances, np.ones(len(z)))
    (low, high), middle = intervals(value, drawn, complete.error)[name], value[name]
    assert [low, high] == np.percentile([one[name] for one in drawn], [2.5, 97.5]).tolist()
    sides = [np.array(share) for share in (middle, low, high)]
    wider = widened(name, *sides, ESTIMATED)
    assert wider[0] < low and wider[1] > high
    # 0.35 standard deviations of a logit beside twice the range of the resamples
    up = np.hypot(2 * (logit(high) - logit(middle)), 1.96 * 0.35)
    assert logit(wider[1]) - logit(middle) == pytest.approx(up)


def test_observed_labels_are_certain_unless_the_number_of_positives_is_given():
    z, _, observed = world(200)
    assert (Evidence.of_observed(z, observed).chances[observed == 1] == 1).all()
    assert (Evidence.of_observed(z, observed, 2.0).chances[observed == 1] < 1).any()


@pytest.mark.parametrize(("items", "times"), [(1000, 200), (1001, 50)])
def test_progress_is_reported_and_large_tables_are_resampled_less(items, times):
    progress = []
    evidence = Evidence.of_complete(np.zeros((items, 100)), np.ones((items, 100)))
    assert sum(1 for _ in evidence.resamples(0, lambda *numbers: progress.append(numbers))) == times
    assert progress == [(time, times) for time in range(1, times + 1)]
