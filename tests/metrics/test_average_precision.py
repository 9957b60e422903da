from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from spml.metrics import (
    average_precision,
    mean_average_precision,
    observed_average_precision,
    selection_score,
)
from spml.metrics import scores as metrics_scores
from tests.metrics.conftest import small_tables


def oracle(logits, truth):
    """scikit-learn on the known entries of each class; 0 without positives."""
    values = []
    for scores, labels in zip(np.asarray(logits).T, np.asarray(truth).T, strict=True):
        known = labels != 0
        some = (labels == 1).any()
        values.append(average_precision_score(labels[known] == 1, scores[known]) if some else 0.0)
    return np.array(values)


def assert_is_oracle(logits, truth):
    values = average_precision(logits, truth)
    np.testing.assert_allclose(values, oracle(logits, truth), rtol=0, atol=1e-12)


table = partial(small_tables, items=st.integers(1, 12), classes=st.integers(1, 4))


@given(table([1, -1, 0]))
@settings(max_examples=300, deadline=None)
def test_equals_scikit_learn_under_ties_and_unknown_labels(case):
    assert_is_oracle(*case)


@pytest.mark.parametrize("decimals", [0, 1, 7])
@pytest.mark.parametrize("unknown", [0.0, 0.4])
def test_equals_scikit_learn_at_some_size(random_table, decimals, unknown):
    logits, truth = random_table(2000, 7, unknown=unknown, decimals=decimals)
    assert_is_oracle(logits, truth)


@pytest.mark.parametrize("block", [1, 1000, 2500])
@pytest.mark.parametrize(("items", "unknown"), [(500, 0.0), (500, 0.4), (4, 0.0)])
def test_blocks_of_classes_change_nothing(random_table, monkeypatch, block, items, unknown):
    logits, truth = random_table(items, 9, unknown=unknown)
    whole = average_precision(logits, truth)
    monkeypatch.setattr(metrics_scores, "BLOCK", block)
    np.testing.assert_array_equal(average_precision(logits, truth), whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("truth_dtype", [torch.int8, torch.int64, torch.float32])
def test_torch_of_any_precision(random_table, dtype, truth_dtype):
    logits, truth = random_table(200, 4, unknown=0.2)
    tensor = torch.from_numpy(logits).to(dtype).requires_grad_()
    expected = oracle(tensor.detach().double().numpy(), truth)
    result = average_precision(tensor, torch.from_numpy(truth).to(truth_dtype))
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_numpy_of_any_precision(random_table, dtype):
    logits, truth = random_table(200, 4)
    assert_is_oracle((logits * 10).astype(dtype), truth)


def test_ranks_logits_that_one_probability_would_merge():
    logits = np.array([[30.0], [20.0]], np.float32)  # both have probability 1 in float32
    np.testing.assert_array_equal(average_precision(logits, [[-1], [1]]), [0.5])
    np.testing.assert_array_equal(average_precision(logits, [[1], [-1]]), [1.0])


def test_float64_scores_are_not_rounded():
    assert average_precision(np.array([[1 + 1e-12], [1.0]]), [[1], [-1]]) == [1.0]


def test_infinite_logits_rank_first_and_last():
    logits = np.array([[np.inf], [0.0], [-np.inf]], np.float32)
    np.testing.assert_allclose(average_precision(logits, [[-1], [1], [1]]), [(1 / 2 + 2 / 3) / 2])


def test_small_and_empty_tables():
    assert average_precision([[0.3, 0.1, 2.0]], [[1, -1, 0]]).tolist() == [1.0, 0.0, 0.0]
    for shape in ((5, 2), (0, 3), (3, 0)):
        assert average_precision(np.zeros(shape), np.zeros(shape)).tolist() == [0.0] * shape[1]


def test_mean_counts_a_class_without_positives_as_zero():
    logits = [[2.0, 0.0], [1.0, 0.0]]
    assert mean_average_precision(logits, [[1, -1], [-1, -1]]) == 0.5


@given(table([1, 0]))
@settings(max_examples=100, deadline=None)
def test_observed_average_precision_ranks_positives_against_all_other_items(case):
    logits, observed = case
    some = (observed == 1).any(axis=0)
    result = observed_average_precision(logits, observed)
    np.testing.assert_array_equal(np.isnan(result), ~some)
    expected = oracle(logits, np.where(observed == 1, 1, -1))
    np.testing.assert_allclose(result[some], expected[some], rtol=0, atol=1e-12)
    if some.any():
        np.testing.assert_allclose(
            selection_score(logits, observed, counts=1), expected[some].mean(), rtol=0, atol=1e-12
        )


def test_known_negatives_count_as_other_items():
    logits = [[3.0], [2.0], [1.0]]
    assert observed_average_precision(logits, [[0], [1], [-1]]) == [0.5]
    assert observed_average_precision(logits, [[-1], [1], [0]]) == [0.5]


@pytest.mark.parametrize("c", [0.2, 0.5, 0.8])
def test_random_observation_scales_average_precision_by_the_observed_share(c):
    random = np.random.default_rng(3)
    share = random.uniform(0.05, 0.4, 6)
    truth = np.where(random.random((40_000, 6)) < share, 1, -1).astype(np.int8)
    logits = random.normal(size=truth.shape) + 0.4 * truth
    seen = np.random.default_rng(7).random(truth.shape) < c
    observed = np.where(seen, np.maximum(truth, 0), 0)
    ratio = observed_average_precision(logits, observed) / average_precision(logits, truth)
    np.testing.assert_allclose(ratio, c, rtol=0.08)
