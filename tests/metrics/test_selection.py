"""The criterion that compares models by observed positives."""

import numpy as np
import pytest

from spml.metrics import mean_average_precision, selection_score
from spml.metrics.selection import estimated_positives, precisions

ITEMS, CLASSES = 3000, 8


def scenes(seed=0):
    """Complete labels with one to four positives, and one observed positive per item."""
    random = np.random.default_rng(seed)
    truth = np.full((ITEMS, CLASSES), -1, np.int8)
    observed = np.zeros((ITEMS, CLASSES), np.int8)
    for row in range(ITEMS):
        present = random.choice(CLASSES, random.integers(1, 5), replace=False)
        truth[row, present] = 1
        observed[row, random.choice(present)] = 1
    return truth, observed


def model(truth, quality, seed=1):
    noise = np.random.default_rng(seed).normal(size=truth.shape)
    return (noise + quality * truth).astype(np.float32)


def by_definition(logits, observed, counts):
    """The definition, with loops."""
    aps = []
    for c in range(observed.shape[1]):
        rows = [i for i in range(len(observed)) if observed[i, c] == 1]
        if not rows:
            continue
        total, weight = 0.0, sum(counts[i] for i in rows)
        for i in rows:
            hits = sum(counts[j] for j in rows if logits[j, c] >= logits[i, c])
            reached = sum(logits[j, c] >= logits[i, c] for j in range(len(observed)))
            total += counts[i] / weight * min(1.0, hits / reached)
        aps.append(total)
    return np.mean(aps)


@pytest.mark.parametrize("digits", [8, 0])  # without decimals many scores are equal
def test_the_score_is_its_definition(digits):
    random = np.random.default_rng(3)
    logits = random.normal(size=(40, 5)).round(digits)
    observed = (random.random((40, 5)) < 0.2).astype(np.int8)
    observed[:, 4] = 0  # a class without an observed positive is left out
    counts = random.uniform(1, 4, 40)
    assert selection_score(logits, observed, counts) == pytest.approx(
        by_definition(logits, observed, counts), abs=1e-12
    )


def test_with_the_true_numbers_of_positives_the_score_is_the_average_precision():
    truth, observed = scenes()
    counts = (truth == 1).sum(axis=1)
    for quality in (0.3, 0.8, 1.5):
        logits = model(truth, quality)
        exact = mean_average_precision(logits, truth)
        assert selection_score(logits, observed, counts) == pytest.approx(exact, abs=0.05)


def test_the_number_of_positives_is_estimated_from_several_models():
    truth, observed = scenes()
    models = [model(truth, quality, seed) for seed, quality in enumerate((1.0, 1.5, 2.0))]
    counts, exact = estimated_positives(models, observed), (truth == 1).sum(axis=1)
    assert counts.mean() == pytest.approx(exact.mean(), rel=0.1)
    assert np.corrcoef(counts, exact)[0, 1] > 0.7


def test_items_without_an_observed_positive_count_once():
    truth, observed = scenes()
    observed[:10] = 0
    assert (estimated_positives([model(truth, 1.0)], observed)[:10] == 1).all()


def test_the_standard_error_is_that_of_the_draw():
    truth, _ = scenes()
    good, better = model(truth, 1.0), model(truth, 1.1, seed=2)
    leads, errors = [], []
    for seed in range(40):
        random = np.random.default_rng(seed)
        keys = np.where(truth == 1, random.random(truth.shape), -1.0)
        observed = (keys == keys.max(axis=1, keepdims=True)).astype(np.int8)
        counts = (truth == 1).sum(axis=1)
        ours, theirs = (precisions(one, observed, counts) for one in (better, good))
        lead, error = ours.lead(theirs)
        assert lead == pytest.approx(ours.score - theirs.score)
        leads.append(lead)
        errors.append(error)
    assert np.mean(errors) == pytest.approx(np.std(leads), rel=0.35)
