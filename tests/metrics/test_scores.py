import subprocess
import sys

import numpy as np
import pytest
import torch

from spml import metrics
from spml.errors import UserError

FUNCTIONS = {
    "average_precision": metrics.average_precision,
    "mean_average_precision": metrics.mean_average_precision,
    "observed_average_precision": metrics.observed_average_precision,
    "selection_score": metrics.selection_score,
    "threshold_metrics": metrics.threshold_metrics,
    "precision_at_k": lambda logits, truth: metrics.precision_at_k(logits, truth, 1),
    "recall_at_k": lambda logits, truth: metrics.recall_at_k(logits, truth, 1),
    "calibration_error": metrics.calibration_error,
    "coverage": metrics.coverage,
    "ranking_loss": metrics.ranking_loss,
    "MeanAveragePrecision": lambda logits, truth: metrics.MeanAveragePrecision()(logits, truth),
}
GOOD = np.array([[1, -1, 0], [-1, 1, 1]], np.int8)


@pytest.fixture(params=FUNCTIONS.values(), ids=FUNCTIONS.keys())
def metric(request):
    return request.param


def test_shapes_that_differ_or_are_not_two_axes(metric):
    with pytest.raises(UserError, match=r"\(2, 3\).*\(3, 2\)"):
        metric(np.zeros((2, 3)), GOOD.T)
    with pytest.raises(UserError, match=r"\(6,\).*items, classes"):
        metric(np.zeros(6), GOOD.ravel())


@pytest.mark.parametrize("value", [2, -2, 0.5, 255, 257, np.nan, np.inf])
def test_labels_outside_the_three_values(metric, value):
    truth = GOOD.astype(np.float64)
    truth[1, 2] = value
    with pytest.raises(UserError, match=f"holds {value}"):
        metric(np.zeros((2, 3)), truth)


@pytest.mark.parametrize(
    ("truth", "message"), [(GOOD.astype(np.uint8), "holds 255"), (GOOD == 1, "boolean")]
)
def test_unsigned_labels_that_wrap_and_boolean_labels(metric, truth, message):
    with pytest.raises(UserError, match=message):
        metric(np.zeros((2, 3)), truth)


@pytest.mark.parametrize("truth", [GOOD, (GOOD == 1).astype(int), np.ones((2, 3), int)])
def test_truth_of_0_and_1_causes_a_warning(recwarn, request, metric, truth):
    metric(np.zeros((2, 3)), truth)
    meant = any(name in request.node.name for name in ("observed", "selection_score"))
    expected = 0 if meant or truth.min() != 0 else 1
    warned = ["write absent labels as -1" in str(warning.message) for warning in recwarn]
    assert sum(warned) == expected


def test_place_of_a_wrong_label_is_named():
    truth = GOOD.copy()
    truth[1, 2] = 7
    with pytest.raises(UserError, match="truth holds 7 at item 1, class 2"):
        metrics.average_precision(np.zeros((2, 3)), truth)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_nan_is_located(metric, kind):
    logits = np.zeros((2, 3), np.float32)
    logits[1, 1] = logits[1, 2] = np.nan
    with pytest.raises(UserError, match="NaN, first at item 1, class 1"):
        metric(kind(logits), kind(GOOD))


@pytest.mark.parametrize("value", ["x", 1j])
def test_logits_that_are_not_numbers(value):
    with pytest.raises(UserError, match="dtype"):
        metrics.average_precision(np.full((2, 3), value), GOOD)


def test_user_errors_are_value_errors():
    with pytest.raises(ValueError, match="observed positive"):
        metrics.selection_score(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="no classes"):
        metrics.mean_average_precision(np.zeros((2, 0)), np.zeros((2, 0)))
    with pytest.raises(ValueError, match="no classes"):
        metrics.threshold_metrics(np.zeros((2, 0)), np.zeros((2, 0)))


def test_inputs_are_left_as_they_were(metric):
    logits, truth = np.arange(6, dtype=np.float32).reshape(2, 3), GOOD.copy()
    metric(logits, truth)
    np.testing.assert_array_equal(logits, np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(truth, GOOD)


def test_metrics_need_no_torch_and_names_resolve():
    code = (
        "import sys, spml.metrics; assert spml.metrics.average_precision([[1.0]], [[1]]) == [1]\n"
        "assert not {'torch', 'torchmetrics', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(getattr(metrics, name) for name in metrics.__all__)
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        metrics.nothing_of_ours  # noqa: B018
