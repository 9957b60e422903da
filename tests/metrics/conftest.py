import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


def small_tables(values, items, classes):
    """Logits of a few distinct values, so that most of them tie, and labels of the same shape."""
    return st.tuples(items, classes).flatmap(
        lambda shape: st.tuples(
            arrays(np.float32, shape, elements=st.integers(-3, 3).map(lambda value: value / 2)),
            arrays(np.int8, shape, elements=st.sampled_from(values)),
        )
    )


@pytest.fixture
def random_table():
    """Logits (rounded, so that many tie) and labels of any shape, a share of them unknown."""

    def make(items, classes, seed=0, unknown=0.0, decimals=1):
        random = np.random.default_rng(seed)
        truth = np.where(random.random((items, classes)) < 0.3, 1, -1).astype(np.int8)
        logits = np.round(random.normal(size=truth.shape) + truth, decimals).astype(np.float32)
        truth[random.random(truth.shape) < unknown] = 0
        return logits, truth

    return make
