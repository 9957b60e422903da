import numpy as np
import pytest
import torch

from spml.errors import UserError
from spml.model.calibration import Calibration, apply_lines
from spml.use.calibrate.fit import Target, fit_lines, straight, straight_step, threshold, thresholds

P = np.array([0.95, 0.9, 0.7, 0.4, 0.4, 0.1, 0.05])
Z = np.random.default_rng(3).normal(-1, 2, (3000, 4))


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def drawn(logits):
    return (np.random.default_rng(4).random(Z.shape) < sigmoid(logits)).astype(float)


@pytest.mark.parametrize("shape", ["temperature", "isotonic", "none"])
def test_lines_are_applied_as_the_model_applies_them(shape):
    knots = fit_lines(Z, drawn(2 * Z + 1), shape)
    logits = np.concatenate([Z[:50], 30 * Z[:50]])
    theirs = Calibration(knots, 4)(torch.from_numpy(logits)).numpy()
    assert apply_lines(logits, knots) == pytest.approx(theirs, rel=1e-4, abs=1e-3)


def test_slopes_and_shifts_are_recovered():
    shifts = np.array([-1.0, 0, 1, 2])
    slopes, fitted = straight(Z, drawn(2 * Z + shifts))
    assert slopes == pytest.approx(2, abs=0.25) and fitted == pytest.approx(shifts, abs=0.35)
    near = straight_step(Z, sigmoid(2.1 * Z + shifts), np.ones(len(Z)), np.full(4, 2.0), shifts)
    assert near[0] == pytest.approx(2.1, abs=0.02)


def test_isotonic_lines_follow_what_scaling_cannot_and_few_positives_stay_straight():
    chances = np.where(Z > 0, 0.7, 0.1)
    chances[:, 3] = 0.001
    knots = fit_lines(Z, chances, "isotonic")
    assert sigmoid(apply_lines(Z, knots))[:, :3] == pytest.approx(chances[:, :3], abs=0.02)
    assert len(knots[3][0]) == 2


def test_separable_and_unseen_classes_have_finite_lines():
    chances = (Z > 0).astype(float)
    chances[:, 1] = 0
    Z0 = Z.copy()
    Z0[:, 2] = 0.5
    assert np.isfinite(apply_lines(Z0, fit_lines(Z0, chances, "isotonic"))).all()


def test_the_f1_threshold_is_the_best_of_all_cuts():
    cut = threshold(P, Target())
    scores = {t: 2 * P[t <= P].sum() / ((t <= P).sum() + P.sum()) for t in set(P)}
    best = max(scores, key=lambda t: scores[t])
    assert (cut <= P).tolist() == (best <= P).tolist() and cut == pytest.approx((0.4 + 0.1) / 2)


def test_precision_tags_as_many_and_recall_as_few_items_as_possible():
    cut = threshold(P, Target.parse("precision=0.8"))
    assert P[cut <= P].mean() >= 0.8 > P[P >= 0.4].mean() and (cut <= P).sum() == 3
    cut = threshold(P, Target.parse("recall=0.5"))
    assert (cut <= P).sum() == 2 and P[cut <= P].sum() / P.sum() >= 0.5 > P[0] / P.sum()
    assert threshold(P, Target.parse("precision=0.99")) == 0.99
    assert (threshold(P, Target("precision", 0.95)) <= P).sum() == 1  # exactly the target
    assert threshold(np.array([0.75, 0.25]), Target("precision", 0.5)) == 0.125
    without_first = np.array([0.0, 1, 1, 1, 1, 1, 1])
    assert threshold(P, Target("precision", 0.94), without_first) == 0.94


def test_a_threshold_is_half_way_to_the_next_item():
    for p, expected in (([0.9, 0.8, 0.1], (0.8 + 0.1) / 2), ([0.9, 0.8], 0.8 / 2)):
        assert threshold(np.array(p), Target("precision", 0.8)) == pytest.approx(expected)


def test_equal_probabilities_are_not_separated_and_weights_count():
    assert (threshold(np.full(5, 0.3), Target()) <= np.full(5, 0.3)).all()
    target, twice = Target.parse("recall=0.6"), np.repeat(P, 2)
    assert threshold(P, target, np.full(7, 2.0)) == threshold(twice, target)
    assert thresholds(np.stack([P, P], 1), Target()).tolist() == [threshold(P, Target())] * 2


def test_an_invalid_aim_is_refused():
    precisions = ("precision", "precision=", "precision=90")
    for text in ("f2", "f1=0.5", *precisions, "recall=0", "recall=x", "recall=1", "recall=1.5"):
        with pytest.raises(UserError, match=r"write f1, precision=0.9 or recall=0.9"):
            Target.parse(text)


@pytest.mark.parametrize("least", [0.05, 0.3, 0.6, 0.9])
def test_thresholds_mean_the_same_to_predictions_which_are_float32(least):
    p = 1 / (1 + np.exp(-np.array([40.0, 30, 25, 20, 17.3, 16.5, 16, 15, 10, 2, -3, -5])))
    for aim in (Target("recall", least), Target("precision", least), Target()):
        cut = threshold(p, aim)
        np.testing.assert_array_equal(p.astype(np.float32) >= np.float32(cut), p >= cut)
    tagged = p >= threshold(p, Target("recall", least))
    assert p[tagged].sum() >= least * p.sum()
