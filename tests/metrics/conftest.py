import numpy as np
import pytest


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
