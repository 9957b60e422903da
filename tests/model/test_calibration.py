import numpy as np
import pytest
import torch

from spml.model.calibration import Calibration


def test_without_knots_logits_stay_as_they_are() -> None:
    logits = torch.randn(5, 3)
    assert torch.equal(Calibration(None, 3)(logits), logits)


def test_two_knots_are_a_scale_and_a_shift() -> None:
    logits = torch.randn(7, 2) * 10
    got = Calibration([[[0.0, 1.0], [-1.0, 1.0]], [[-3.0, 3.0], [0.0, 3.0]]], 2)(logits)
    torch.testing.assert_close(got, torch.stack([2 * logits[:, 0] - 1, logits[:, 1] / 2 + 1.5], 1))


def test_lines_of_different_lengths_are_interpolated_and_extended_linearly() -> None:
    x, y = [-2.0, 0.0, 1.0, 4.0], [-3.0, -3.0, 1.0, 2.0]
    points = torch.linspace(-2, 4, 50)
    got = Calibration([[x, y], [[0.0, 1.0], [0.0, 1.0]]], 2)(points.unsqueeze(1).expand(-1, 2))
    np.testing.assert_allclose(got[:, 0], np.interp(points.numpy(), x, y), atol=1e-5)
    torch.testing.assert_close(got[:, 1], points)
    ends = Calibration([[x, y]], 1)(torch.tensor([[-5.0], [7.0]]))
    torch.testing.assert_close(ends, torch.tensor([[-3.0], [3.0]]))


def test_a_line_keeps_its_digits_beyond_steep_steps_and_never_falls() -> None:
    """Neighbouring items can be 1e-4 apart, and isotonic regression steps between them."""
    x, y = [-6.0], [-4.0]
    for step in range(10):
        x += [step / 2, step / 2 + 1e-4]
        y += [y[-1], y[-1] + 0.7]
    points = torch.linspace(-6, 5, 3001)
    got = Calibration([[[*x, 9.0], [*y, 5.0]], [[0.0, 1.0], [0.0, 1.0]]], 2)(
        points.unsqueeze(1).expand(-1, 2)
    )
    np.testing.assert_allclose(
        got[:, 0], np.interp(points.numpy(), [*x, 9.0], [*y, 5.0]), atol=1e-5
    )
    assert got[:, 0].diff().min() >= 0
    torch.testing.assert_close(got[:, 1], points)


@pytest.mark.parametrize(
    ("knots", "reason"),
    [
        ([[[0.0, 1.0], [0.0, 1.0]]], "each of 2"),
        ([[[0.0], [0.0]]] * 2, "two or more"),
        ([[[0.0, 1.0], [1.0, 0.0]]] * 2, "rise"),
        ([[[0.0, 0.0], [0.0, 1.0]]] * 2, "rise"),
        ([[[0.0, float("nan")], [0.0, 1.0]]] * 2, "rise"),
        (["ab"] * 2, "numbers"),
        (3, "each of 2"),
    ],
)
def test_invalid_lines_are_refused(knots, reason) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=reason):
        Calibration(knots, 2)


def test_the_inverse_returns_the_logits_inside_and_beyond_the_knots() -> None:
    knots = [[[-1.0, 0.0, 2.0], [-3.0, 1.0, 2.0]], [[0.0, 1.0], [0.5, 3.5]]]
    calibration = Calibration(knots, 2)
    for logits in ([-4.0, -2.0], [-0.5, 0.25], [1.5, 1.0], [9.0, 7.0]):
        expected = torch.tensor(logits)
        torch.testing.assert_close(calibration.inverse(calibration(expected)), expected)
    flat = Calibration([[[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 1.0, 2.0]], [[0.0, 1.0], [1.0, 1.0]]], 2)
    assert flat.inverse(torch.tensor([1.0, 5.0])).tolist() == [1.0, 0.0]
    assert Calibration(None, 2).inverse(torch.tensor([-3.0, 4.0])).tolist() == [-3.0, 4.0]
