"""The paper's studies of losses and confidences: formulas, distances and ratios."""

import json

import numpy as np
import pytest
from scipy.stats import chi2

from spml.analysis.confidences import (
    assumptions,
    constant_p,
    distinguishability,
    posterior,
    ratios,
    unknown_labels,
    wilson,
)
from spml.analysis.gradients import at_unknown, gradient_curves, loss_curves
from spml.errors import UserError

P = np.array([0.01, 0.2, 0.5, 0.8, 0.99])


def test_l3():
    curves = {curve.label: curve for curve in loss_curves()}
    qs = {f"q3 = {q:g}": q for q in (0.001, 0.25, 0.5, 0.75, 1.0, 1.5)}
    assert list(curves) == [*qs, "cross-entropy"]
    p = np.linspace(0.005, 0.995, 199)
    for label, curve in curves.items():
        expected = (1 - (1 - p) ** qs[label]) / qs[label] if label in qs else -np.log1p(-p)
        np.testing.assert_allclose(curve.p, p)
        np.testing.assert_allclose(curve.values, expected, rtol=1e-9, atol=1e-12)


def gr(p, w, b, q2=0.01, q3=1.0):
    k = 1 / (1 + np.exp(-(w * p + b)))
    return (1 - k) * (1 - p) ** q3 * p - k * p**q2 * (1 - p)


FORMULAS = {
    "GR, β(0)": lambda p: gr(p, 0, -2),
    "GR, β(T) of VOC": lambda p: gr(p, 2, -2),
    "GR, β(T) of COCO": lambda p: gr(p, 10, -8),
    "EM": lambda p: np.log(p / (1 - p)) * p * (1 - p),
    "Hill": lambda p: 3 * p**2 * (1 - p) ** 2,
}


def test_gradients_are_the_papers():
    curves = {curve.label: curve for curve in gradient_curves()}
    assert list(curves) == list(FORMULAS)
    for label, formula in FORMULAS.items():
        np.testing.assert_allclose(
            curves[label].values, formula(np.asarray(curves[label].p)), rtol=1e-7, atol=1e-9
        )


def test_confidences_can_be_given():
    values, gradient = at_unknown("an", {}, P)
    np.testing.assert_allclose(values, -np.log1p(-P))
    np.testing.assert_allclose(gradient, P)


def test_unknown_labels_exclude_the_drawn_ones(make):
    unknown = unknown_labels(make())
    assert unknown.mask.shape == (8, 3) and unknown.mask.sum() == 16 and unknown.seen == 8
    assert unknown.epochs == [0, 1, 2] and set(unknown.at(0)) == {0.5}
    np.testing.assert_allclose(unknown.at(2)[unknown.positive], 1 / (1 + np.exp(-2)))
    assert unknown.observed_share == 8 / (8 + unknown.positive.sum())


def test_a_benchmark_uses_the_mean_positives_of_the_paper(make):
    assert unknown_labels(make(data="voc")).observed_share == 1 / 1.46


def test_the_distance_is_that_of_samples(make):
    rng = np.random.default_rng(0)
    result = distinguishability(unknown := unknown_labels(make(logits=rng.normal(size=(3, 8, 3)))))
    confidence = unknown.at(1)
    one, other = np.sort(confidence[unknown.positive]), np.sort(confidence[~unknown.positive])
    grid = np.sort(confidence)
    below = [np.searchsorted(part, grid[:-1], side="right") / len(part) for part in (one, other)]
    assert result.distances[1] == pytest.approx((np.abs(below[0] - below[1]) * np.diff(grid)).sum())
    assert sum(result.positive_counts) == result.positives == unknown.positive.sum()
    assert sum(result.negative_counts) == result.negatives
    assert result.best_distance == result.distances[2]


def test_labels_are_indistinguishable_before_training_and_separate_after(make):
    result = distinguishability(unknown_labels(make()))
    assert result.distances[0] == 0 and result.distances[2] == pytest.approx(np.tanh(1), rel=1e-3)
    groups = (result.positive_counts, result.negative_counts)
    bins = [np.flatnonzero(counts).tolist() for counts in groups]
    assert bins == [[44], [5]] and len(result.positive_counts) == 50  # at 0.88 and 0.12


def test_ratios_count_bins():
    confidence = np.array([0.005] * 20 + [0.995] * 20 + [1.0])
    positive = np.array([False] * 20 + [True] * 15 + [False] * 6)
    result = ratios(confidence, positive, 0.5, 3)
    assert result.labels == [20, 21] and result.positives == [0, 15] and result.share == 15 / 41
    assert result.confidence[1] == pytest.approx((20 * 0.995 + 1) / 21)
    assert result.expected[0] == pytest.approx(0.5 * 0.005 / (1 - 0.5 * 0.005))
    assert result.higher > 0.8 and result.constant_p < 1e-4 and result.rank_correlation is None
    assert result.within == 0.5  # k_hat is in the first bin's interval, and nearly 1 in the second


def test_a_constant_share_is_recognised():
    rng = np.random.default_rng(1)
    result = ratios(rng.random(5000), rng.random(5000) < 0.1, 0.5, 0)
    assert result.constant_p > 0.05 and abs(result.higher - 0.5) < 0.05
    rising = rng.random(5000)
    result = ratios(rising, rng.random(5000) < posterior(rising, 0.5), 0.5, 1)
    assert result.rank_correlation > 0.9 and result.within > 0.85 and result.distance < 0.1


@pytest.mark.parametrize(
    ("positives", "labels", "merged"),
    [
        # 5.7 are expected in the last
        ([20, 10, 4], [100, 100, 40], [(20, 100), (10, 100), (4, 40)]),
        ([20, 10, 1, 2], [100, 100, 20, 10], [(20, 100), (10, 100), (3, 30)]),
        ([20, 10, 0], [100, 100, 1], [(20, 100), (10, 100), (0, 1)]),
        ([20, 10], [100, 100], [(20, 100), (10, 100)]),
    ],
)
def test_shares_are_compared_by_chi_squared_with_rare_bins_merged(positives, labels, merged):
    hits, total = np.array(merged, float).T
    share = hits.sum() / total.sum()
    statistic = ((hits - share * total) ** 2 / (share * (1 - share) * total)).sum()
    expected = pytest.approx(chi2.sf(statistic, len(total) - 1))
    assert constant_p(np.array(positives), np.array(labels)) == expected


@pytest.mark.parametrize(
    ("positives", "labels"), [([3], [9]), ([0, 0], [50, 50]), ([50, 50], [50, 50])]
)
def test_shares_that_cannot_differ_are_constant(positives, labels):
    assert constant_p(np.array(positives), np.array(labels)) == 1.0


def test_bins_with_ten_labels_are_points():
    confidence, positive = np.repeat([0.105, 0.505, 0.905], [10, 10, 9]), np.arange(29) % 2 == 0
    # of the first two bins; the second has the share of k_hat
    assert ratios(confidence, positive, 0.5, 0).within == 0.5
    few = ratios(confidence[15:], positive[15:], 0.5, 0)
    assert few.within == 0.0 and few.rank_correlation is None


def test_wilson():
    """The roots of (share - x)² = z² x (1 - x) / n."""
    low, high = wilson(np.array([0, 5, 7]), np.array([10, 10, 20]))
    assert low == pytest.approx([0, 0.2366, 0.1812], abs=1e-4)
    assert high == pytest.approx([0.2775, 0.7634, 0.5671], abs=1e-4)


def test_both_ends_of_a_run(make):
    result = assumptions(unknown_labels(make()), 0.6)
    assert (result.before.epoch, result.after.epoch, result.a) == (0, 2, 0.6)
    assert result.after.higher == 1


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_missing_first_or_last_epoch_is_not_replaced_by_another(make, epoch):
    folder = make()
    (folder / "scores" / f"val-{epoch:02d}.npz").unlink()
    with pytest.raises(UserError, match=f"scores of epoch {epoch} are needed"):
        assumptions(unknown_labels(folder), 0.6)


def no_labels(folder):
    (folder / "labels.npz").unlink()


def no_scores(folder):
    for file in (folder / "scores").glob("val-*.npz"):
        file.unlink()


def a_folder(folder):
    (folder / "scores" / "val-01.npz").unlink()
    (folder / "scores" / "val-01.npz").mkdir()


def no_numbers(folder):
    values = np.full((8, 3), np.nan, np.float16)
    np.savez(folder / "scores" / "val-01.npz", logits=values)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_labels, "no labels.npz"),
        (no_scores, "val-00.npz is not there"),
        (a_folder, "is not there"),
        (no_numbers, "diverged"),
    ],
    ids=["labels", "scores", "folder", "nan"],
)
def test_missing_parts_are_named(make, spoil, message):
    folder = make()
    spoil(folder)
    with pytest.raises(UserError, match=message):
        distinguishability(unknown_labels(folder))


@pytest.mark.parametrize("row", [[1, 0, 0], [1, -1, -1], [1, 1, 1]])
def test_uninformative_validation_labels_are_refused(make, row):
    with pytest.raises(UserError, match="complete validation labels"):
        unknown_labels(make(truth=[row] * 8))


def test_the_files_hold_the_computed_values(make, tmp_path):
    from spml.analysis.archive import find
    from spml.analysis.figures import FIGURES, Source, draw

    make()
    make("an-0", method="an")
    draw(FIGURES["d"], Source(find(tmp_path)[0]), tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "distinguishability.json").read_text())
    assert [one["method"] for one in stored["study"]] == ["gr", "an"] and stored["wanting"] == ""
    assert stored["study"][0]["distances"][2] == pytest.approx(np.tanh(1), rel=1e-3)
