import numpy as np
import pytest

from spml.use.review import ranking
from spml.use.review.ranking import Scale, fit_scale, likeliest


@pytest.fixture
def drawn():
    """Labels observed according to a scale, with logits that differ in scale between classes."""
    rng = np.random.default_rng(3)
    odds = rng.normal(-2, 2, (6000, 5))
    observed = (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(np.int8)
    offsets = np.array([0.0, 5.0, -7.0, 2.0, 0.5])
    return ((odds - offsets) / 0.5).astype(np.float32), observed, offsets


def test_the_scale_behind_the_labels_is_recovered(drawn):
    logits, observed, offsets = drawn
    scale = fit_scale(logits, observed)
    assert scale.slope == pytest.approx(0.5, abs=0.02)
    assert scale.shifts == pytest.approx(offsets, abs=0.4)
    shares = (1 / (1 + np.exp(-scale(logits)))).mean(axis=0)
    assert shares == pytest.approx((observed == 1).mean(axis=0), abs=1e-3)


def test_a_large_table_is_sampled(drawn, monkeypatch):
    logits, observed, _ = drawn
    monkeypatch.setattr(ranking, "SAMPLE", 3000 * 5)
    assert fit_scale(logits, observed).slope == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    "logits", [np.zeros((4, 2)), np.full((4, 2), 3e4), np.array([[1e4, -1e4]] * 3 + [[-1e4, 0.0]])]
)
def test_degenerate_logits_and_classes_without_positives_have_a_finite_scale(logits):
    observed = np.zeros((4, 2), np.int8)
    observed[:, 0] = [1, 0, 0, -1]
    scale = fit_scale(logits.astype(np.float32), observed)
    assert scale.slope > 0 and np.isfinite(scale(logits)).all()


def test_only_unknown_labels_are_ranked_and_ties_go_by_row_and_column(monkeypatch):
    logits = np.array([[1, 5, 1], [4, 1, 2], [9, 9, 9]], np.float32)
    observed = np.array([[0, 1, 0], [-1, 0, 0], [1, 1, 0]], np.int8)
    plain = Scale(1.0, np.zeros(3))
    wanted = [(2, 2), (1, 2), (0, 0), (0, 2), (1, 1)]
    for rows_together in (8192, 1, 2):
        monkeypatch.setattr(ranking, "ROWS", rows_together)
        rows, columns = likeliest(plain, logits, observed, 10)
        assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == wanted
        rows, columns = likeliest(plain, logits, observed, 2, columns=[1, 0])
        assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 0), (1, 1)]
        rows, columns = likeliest(plain, logits, observed, 10, per_class=1)
        assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(2, 2), (0, 0), (1, 1)]


def test_per_class_and_count_hold_whatever_the_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    logits, observed = (
        rng.normal(size=(60, 4)).astype(np.float32),
        rng.integers(-1, 2, (60, 4)).astype(np.int8),
    )
    scale = Scale(1.0, np.array([0.0, 2.0, -1.0, 0.5]))
    entries = sorted(zip(*np.nonzero(observed == 0), strict=True), key=lambda e: -scale(logits)[e])
    wanted, counts = [], np.zeros(4, int)
    for row, column in entries:
        if counts[column] < 5 and len(wanted) < 13:
            counts[column] += 1
            wanted.append((row, column))
    for chunk in (7, 1000):
        monkeypatch.setattr(ranking, "ROWS", chunk)
        rows, columns = likeliest(scale, logits, observed, 13, per_class=5)
        assert list(zip(rows, columns, strict=True)) == wanted
