"""Curves of the library's losses against the paper's formulas, written out."""

import numpy as np
import pytest

from spml.analysis.gradients import at_unknown, gradient_curves, loss_curves

P = np.array([0.01, 0.2, 0.5, 0.8, 0.99])


@pytest.mark.parametrize("curve", loss_curves(), ids=lambda curve: curve.label)
def test_l3(curve):
    p = np.asarray(curve.p)
    q = None if curve.label == "cross-entropy" else float(curve.label.split(" = ")[1])
    expected = -np.log1p(-p) if q is None else (1 - (1 - p) ** q) / q
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
        np.testing.assert_allclose(curves[label].values, formula(np.asarray(curves[label].p)), rtol=1e-7, atol=1e-9)


def test_confidences_can_be_given():
    p, values, gradient = at_unknown("an", {}, P)
    np.testing.assert_allclose(p, P)
    np.testing.assert_allclose(values, -np.log1p(-P))
    np.testing.assert_allclose(gradient, P)
