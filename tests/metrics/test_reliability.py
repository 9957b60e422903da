import numpy as np
import pytest

from spml import metrics
from spml.errors import UserError
from spml.metrics.reliability import reliability


def test_the_error_is_the_mean_distance_of_probability_and_share():
    p, y = np.array([0.1, 0.1, 0.1, 0.85, 0.9, 1.0]), np.array([1, 0, 0, 0, 1, 1])
    curve = reliability(p, y, bins=10)
    assert curve.entries.tolist() == [3, 1, 2]
    assert curve.share.tolist() == pytest.approx([1 / 3, 0, 1])
    assert curve.error == pytest.approx((3 * (1 / 3 - 0.1) + 0.85 + 2 * 0.05) / 6)


def test_the_default_is_fifteen_bins():
    assert reliability([0.05, 0.064, 0.068], [0, 0, 0]).entries.tolist() == [2, 1]


def test_calibrated_logits_have_no_error_and_unknown_labels_are_left_out():
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (20000, 3))
    y = np.where(rng.random(z.shape) < 1 / (1 + np.exp(-z)), 1, -1).astype(np.int8)
    assert metrics.calibration_error(z, y) < 0.01 < 0.1 < metrics.calibration_error(3 * z, y)
    y[:, 2] = 0
    assert metrics.calibration_error(z * [1, 1, 50], y) < 0.02


@pytest.mark.parametrize("items", [0, 2])
def test_without_known_labels_there_is_no_error(items):
    with pytest.raises(UserError, match="no known labels"):
        metrics.calibration_error(np.zeros((items, 3)), np.zeros((items, 3), int))
