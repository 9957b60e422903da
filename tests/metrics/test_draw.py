import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from spml.errors import UserError
from spml.metrics.draw import CLASS_SD, GIVEN_SD, LEVEL_SD, SLOPE_SD, draw, drawn_chance, fit_draw


def by_hand(p, observed):
    """Likelihood and chances by summing over every set of labels."""
    classes, seen = len(p), np.flatnonzero(observed == 1)
    some = both = 0.0
    present, conditional = np.zeros(classes), np.zeros(classes)
    for labels in itertools.product((0, 1), repeat=classes):
        y = np.array(labels)
        if (y[observed == -1] == 1).any() or not y.any():
            continue
        q = np.where(observed == -1, 0, p)
        chance = np.prod(np.where(y == 1, q, 1 - q))
        some += chance
        present += chance * y
        if y[seen].all():
            drawn = chance / len(list(itertools.combinations(range(y.sum()), len(seen))))
            both += drawn
            conditional += drawn * y
    return np.log(both / some), present / some, conditional / both


@pytest.mark.parametrize(
    "marks",
    [(1, 0, 0, 0, 0), (1, 0, -1, 0, 0), (1, 1, 0, 0, 0), (1, 1, 0, -1, 1), (1, -1, -1, -1, -1)],
)
def test_likelihood_and_chances_are_those_of_a_sum_over_all_label_sets(marks):
    z, observed = np.random.default_rng(1).normal(0, 2, 5), np.array(marks, np.int8)
    result = draw(z[None], observed[None])
    likelihood, present, seen = by_hand(1 / (1 + np.exp(-z)), observed)
    assert result.log_likelihood[0] == pytest.approx(likelihood)
    assert result.present[0] == pytest.approx(present) and result.seen[0] == pytest.approx(seen)


def test_a_class_is_drawn_with_its_share_of_the_likelihood():
    z = np.random.default_rng(2).normal(0, 2, (3, 4))
    single = [
        draw(z, np.tile(np.eye(4, dtype=np.int8)[c], (3, 1))).log_likelihood for c in range(4)
    ]
    assert drawn_chance(z) == pytest.approx(np.exp(np.array(single).T))


def world(items=4000, classes=8, seed=0):
    """Labels that are independent given calibrated logits, and one positive drawn per item.

    Each item has at least one positive.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(-1.5, 2.5, (items, classes)) + rng.normal(0, 0.7, classes)
    y = rng.random(z.shape) < 1 / (1 + np.exp(-z))
    z, y = z[y.any(axis=1)], y[y.any(axis=1)]
    observed = np.zeros(y.shape, np.int8)
    observed[np.arange(len(y)), np.where(y, rng.random(y.shape), -1).argmax(axis=1)] = 1
    return z, y, observed


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_slope_shifts_and_priors_come_back_from_single_positives(scale):
    z, y, observed = world()
    shift = np.linspace(-1, 1, z.shape[1])
    fit = fit_draw((z - shift) * scale, observed)
    assert fit.slope * scale == pytest.approx(1, abs=0.08)
    assert fit.shifts == pytest.approx(shift, abs=0.35)
    seen = draw(fit.logits((z - shift) * scale), observed).seen
    assert seen.mean(axis=0) == pytest.approx(y.mean(axis=0), abs=0.035)
    assert seen.sum(axis=1).mean() == pytest.approx(y.sum(axis=1).mean(), abs=0.15)


def test_logits_that_are_all_high_do_not_mean_that_all_classes_are_there():
    z, y, observed = world()
    seen = draw(fit_draw(z + 30, observed).logits(z + 30), observed).seen
    assert seen.sum(axis=1).mean() == pytest.approx(y.sum(axis=1).mean(), abs=0.25)


def test_the_fit_meets_a_given_number_of_positives():
    z, _, observed = world(1000)
    for positives in (1.2, 2.0, 3.5):
        fit = fit_draw(z, observed, positives=positives)
        present = draw(fit.logits(z), observed).present
        assert present.sum(axis=1).mean() == pytest.approx(positives, abs=0.02)
    for wrong in (0.5, 9):
        with pytest.raises(UserError, match="from 1 to the number of classes, 8"):
            fit_draw(z, observed, positives=wrong)


def mixed(items=150):
    """A small world with known negatives and items with two observed positives."""
    z, y, observed = world(items)
    rng = np.random.default_rng(7)
    observed[~y & (rng.random(y.shape) < 0.2)] = -1
    observed[y & (rng.random(y.shape) < 0.2)] = 1
    return z, observed


@pytest.mark.parametrize("positives", [None, 2.0, 4.0])
def test_no_other_slope_and_shifts_are_likelier(positives):
    z, observed = mixed()
    z = 2 * z - 1

    def cost(parameters):
        slope, shifts = np.exp(parameters[0]), parameters[1:]
        level = shifts.sum() / (len(shifts) + (CLASS_SD / LEVEL_SD) ** 2)
        prior = (parameters[0] / SLOPE_SD) ** 2 + (level / LEVEL_SD) ** 2
        prior += (((shifts - level) / CLASS_SD) ** 2).sum()
        result = draw(slope * z + shifts, observed)
        off = 0 if positives is None else result.present.sum(axis=1).mean() - positives
        return -result.log_likelihood.sum() + prior / 2 + (off / GIVEN_SD) ** 2 / 2

    fit = fit_draw(z, observed, positives=positives)
    start = np.array([np.log(fit.slope), *fit.shifts])
    assert minimize(cost, start, method="L-BFGS-B").fun > cost(start) - 0.02


def test_scores_are_the_gradients_of_each_item():
    z, observed = mixed()
    fit = fit_draw(z, observed)

    def difference(slope, shift):
        ends = [
            draw(fit.slope * np.exp(slope * side) * z + fit.shifts + shift * side, observed)
            for side in (1, -1)
        ]
        return (ends[0].log_likelihood - ends[1].log_likelihood) / 2e-4

    moves = [(1e-4, 0.0), (0.0, 1e-4), *((0.0, 1e-4 * one) for one in np.eye(z.shape[1]))]
    for column, move in zip(fit.scores.T, moves, strict=True):
        assert column == pytest.approx(difference(*move), abs=1e-5)


def test_extreme_logits_give_finite_likelihoods_and_chances():
    z, _, observed = world(300)
    z[0], z[1] = 6e4, -6e4
    fit = fit_draw(z, observed)
    result = vars(draw(fit.logits(z), observed))
    assert all(np.isfinite(values).all() for values in result.values())


def test_inputs_that_cannot_be_fitted_raise_an_error():
    with pytest.raises(UserError, match="no item has an observed positive"):
        fit_draw(np.zeros((3, 2)), np.zeros((3, 2), np.int8))
    with pytest.raises(UserError, match="one class"):
        fit_draw(np.zeros((3, 1)), np.ones((3, 1), np.int8))


def test_items_without_a_positive_do_not_count():
    z, _, observed = world(300)
    more = np.concatenate([z, z[:20]]), np.concatenate([observed, np.zeros((20, 8), np.int8)])
    assert fit_draw(*more).slope == fit_draw(z, observed).slope
