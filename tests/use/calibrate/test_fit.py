import numpy as np
import pytest
import torch

from spml.model.calibration import Calibration, apply_lines
from spml.use.calibrate.fit import fit_lines, straight, straight_step

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
