"""The draw and the split against literal transcriptions of the reference protocol."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spml.data import observe, split
from spml.data.observation import draw
from spml.data.table import SparseLabels
from spml.errors import UserError
from tests.data.conftest import refused

COMPLETE = hnp.arrays(
    np.int8,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
    elements=st.sampled_from([1, -1]),
)


def reference_draw(labels, seed=1200, positives=1, negatives=0):
    """The reference draw, row by row with lists and one random stream."""
    rng = np.random.RandomState(seed)
    observed = [[0] * labels.shape[1] for _ in labels]
    for i, row in enumerate(labels):
        present = [c for c, value in enumerate(row) if value == 1]
        absent = [c for c, value in enumerate(row) if value == -1]
        rng.shuffle(present)
        rng.shuffle(absent)  # also without negatives: it moves every later draw
        for c in present[:positives]:
            observed[i][c] = 1
        for c in absent[:negatives]:
            observed[i][c] = -1
    return np.array(observed, np.int8).reshape(labels.shape)


def reference_split(n, fraction, seed):
    order = np.random.RandomState(seed).permutation(n)
    num_val = int(np.round(fraction * n))
    return sorted(order[: n - num_val]), sorted(order[n - num_val :])


def synthetic(rows=2000, classes=20, seed=0):
    return np.where(np.random.default_rng(seed).random((rows, classes)) < 0.1, 1, -1).astype(
        np.int8
    )


@given(COMPLETE, st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(0, 4))
def test_draw_is_the_reference(labels, seed, positives, negatives):
    observed = observe(labels, seed, positives, negatives)

    np.testing.assert_array_equal(observed, reference_draw(labels, seed, positives, negatives))
    assert observed.dtype == np.int8


def test_draw_is_recorded():
    digest = hashlib.sha256(observe(synthetic()).astype(np.uint8).tobytes()).hexdigest()
    assert digest == "7760d9f399a435bfb5c938ada63bd773e0e59e122459f721ca58102acea9e4dc"


def test_torch_tensors_are_accepted_and_not_changed():
    labels = synthetic(50)
    before = labels.copy()
    np.testing.assert_array_equal(observe(torch.from_numpy(labels)), observe(labels))
    floats = torch.from_numpy(labels).float().requires_grad_()
    np.testing.assert_array_equal(observe(floats), observe(labels))
    np.testing.assert_array_equal(labels, before)


def test_sparse_labels_are_not_changed():
    sparse = SparseLabels.from_dense(synthetic(100))
    before = sparse.indices.copy()
    draw(sparse, negatives=2)
    np.testing.assert_array_equal(sparse.indices, before)


@pytest.mark.parametrize("labels", [[[1, 0]], [[1, -1], [0, 0]], [[0, 0]]])
def test_unknown_labels_cannot_be_drawn_from(labels):
    with refused("complete labels"):
        observe(np.array(labels))


@pytest.mark.parametrize("options", [{"positives": -1}, {"negatives": -1}])
def test_negative_numbers_are_refused(options):
    with pytest.raises(UserError, match="below 0"):
        observe(synthetic(3), **options)


def test_no_rows():
    assert observe(np.empty((0, 5), np.int8)).shape == (0, 5)


@given(st.integers(0, 500), st.floats(0, 1, exclude_max=True), st.integers(0, 2**32 - 1))
def test_split_is_the_reference_partition(n, fraction, seed):
    train, val = split(n, fraction, seed)

    expected_train, expected_val = reference_split(n, fraction, seed)
    np.testing.assert_array_equal(train, expected_train)
    np.testing.assert_array_equal(val, expected_val)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, val])), np.arange(n))


@pytest.mark.parametrize("fraction", [-0.1, 1, 1.5, float("nan")])
def test_fractions_out_of_range(fraction):
    with pytest.raises(UserError, match="fraction"):
        split(10, fraction)
