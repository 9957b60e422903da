import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spml.errors import UserError
from spml.metrics import threshold_metrics
from tests.metrics.conftest import small_tables

table = partial(small_tables, items=st.integers(1, 8), classes=st.integers(2, 4))


def looped(predicted, truth):
    """The seven numbers from entry-by-entry counts."""

    def ratio(a, b):
        return a / b if b else 0.0

    counts = []
    for chosen, labels in zip(predicted.T, truth.T, strict=True):
        entries = [(p, y) for p, y in zip(chosen, labels, strict=True) if y != 0]
        hits = sum(1 for p, y in entries if p and y == 1)
        counts.append((hits, sum(1 for p, _ in entries if p), sum(1 for _, y in entries if y == 1)))
    precision, recall = [ratio(h, c) for h, c, _ in counts], [ratio(h, a) for h, _, a in counts]
    cp, cr = np.mean(precision), np.mean(recall)
    op = ratio(sum(h for h, _, _ in counts), sum(c for _, c, _ in counts))
    recall_all = ratio(sum(h for h, _, _ in counts), sum(a for _, _, a in counts))
    macro = np.mean([ratio(2 * p * r, p + r) for p, r in zip(precision, recall, strict=True)])
    return {
        "CP": cp,
        "CR": cr,
        "CF1": ratio(2 * cp * cr, cp + cr),
        "macro_f1": macro,
        "OP": op,
        "OR": recall_all,
        "OF1": ratio(2 * op * recall_all, op + recall_all),
    }


@given(table([1, -1, 0]), st.sampled_from([0.5, 0.0, 1.0, 0.2]))
@settings(max_examples=200, deadline=None)
def test_equals_plain_loops(case, threshold):
    logits, truth = case
    with np.errstate(divide="ignore"):
        predicted = logits >= np.log(np.float64(threshold) / (1 - np.float64(threshold)))
    result = dataclasses.asdict(threshold_metrics(logits, truth, threshold))
    assert result == pytest.approx(looped(predicted, truth), abs=1e-12)


@given(table([1, -1, 0]), st.integers(1, 2))
@settings(max_examples=100, deadline=None)
def test_top_k_takes_the_highest_known_entries(case, k):
    logits, truth = case
    predicted = np.zeros(truth.shape, bool)
    for i, labels in enumerate(truth):
        known = [c for c in np.argsort(-logits[i], kind="stable") if labels[c] != 0]
        predicted[i, known[:k]] = True
    result = dataclasses.asdict(threshold_metrics(logits, truth, top_k=k))
    assert result == pytest.approx(looped(predicted, truth), abs=1e-12)


def test_one_threshold_per_class():
    logits, truth = np.array([[0.0, 0.0], [2.0, 2.0]]), np.array([[-1, 1], [1, 1]])
    assert threshold_metrics(logits, truth, [0.6, 0.4]).OF1 == 1.0
    assert threshold_metrics(logits, truth, torch.tensor([0.6, 0.4])).OF1 == 1.0
    assert threshold_metrics(logits, truth, [0.4, 0.6]).OF1 < 1.0


def test_a_probability_of_one_half_is_reached_by_the_logit_zero():
    assert threshold_metrics([[0.0]], [[1]]).OR == 1.0
    assert threshold_metrics([[-1e-30]], [[1]]).OR == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_thresholds_are_compared_in_float64(dtype):
    """20 and 30 are both probability 1 in float32; a threshold can still separate them."""
    threshold = 1 / (1 + np.exp(-np.float64(25)))
    logits = torch.tensor([[20.0], [30.0]], dtype=dtype)
    assert threshold_metrics(logits, torch.tensor([[-1], [1]]), threshold).OF1 == 1.0
    close = np.float32(0.1)
    just_above = 1 / (1 + np.exp(-(np.float64(close) + 1e-10)))
    assert threshold_metrics(np.array([[close]]), [[1]], just_above).OR == 0.0


def test_metrics_are_zero_without_predictions_known_labels_or_items():
    zeros = dict.fromkeys(("CP", "CR", "CF1", "macro_f1", "OP", "OR", "OF1"), 0.0)
    for shape in ((3, 2), (0, 2)):
        assert dataclasses.asdict(threshold_metrics(np.zeros(shape), np.zeros(shape))) == zeros
    assert dataclasses.asdict(threshold_metrics([[-1.0]], [[1]])) == zeros


@pytest.mark.parametrize("threshold", [1.5, -0.1, np.nan, [0.5, 2.0]])
def test_thresholds_that_are_no_probabilities(threshold):
    with pytest.raises(UserError, match="from 0 to 1"):
        threshold_metrics(np.zeros((2, 2)), np.ones((2, 2)), threshold)


def test_thresholds_of_another_shape():
    with pytest.raises(UserError, match=r"\(3,\).*2 classes"):
        threshold_metrics(np.zeros((2, 2)), np.ones((2, 2)), [0.1, 0.2, 0.3])


def test_top_k_outside_the_classes():
    with pytest.raises(UserError, match="k is 3"):
        threshold_metrics(np.zeros((2, 2)), np.ones((2, 2)), top_k=3)
