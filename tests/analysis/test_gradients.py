"""Curves of the library's losses against the paper's formulas, written out."""

import numpy as np

from spml.analysis.gradients import at_unknown, gradient_curves, loss_curves

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
