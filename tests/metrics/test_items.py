from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spml.errors import UserError
from spml.metrics import coverage, precision_at_k, ranking_loss, recall_at_k
from spml.metrics import scores as metrics_scores
from tests.metrics.conftest import small_tables

table = partial(small_tables, items=st.integers(1, 6), classes=st.integers(2, 6))


def known_ranking(scores, labels):
    """Known labels of one item by falling score; ties in the order of classes."""
    order = sorted(range(len(scores)), key=lambda c: (-scores[c], c))
    return [labels[c] for c in order if labels[c] != 0]


def looped_precision(logits, truth, k):
    tops = [known_ranking(*item)[:k] for item in zip(logits, truth, strict=True)]
    return [top.count(1) / len(top) for top in tops if top]


def looped_recall(logits, truth, k):
    rankings = [known_ranking(*item) for item in zip(logits, truth, strict=True)]
    return [labels[:k].count(1) / labels.count(1) for labels in rankings if 1 in labels]


def looped_coverage(logits, truth, _):
    values = []
    for scores, labels in zip(logits, truth, strict=True):
        known = [(s, y) for s, y in zip(scores, labels, strict=True) if y != 0]
        lowest = min((s for s, y in known if y == 1), default=None)
        if known:
            values.append(0 if lowest is None else sum(s >= lowest for s, _ in known))
    return values


def looped_ranking_loss(logits, truth, _):
    values = []
    for scores, labels in zip(logits, truth, strict=True):
        pairs = [
            scores[n] >= scores[p]
            for p in range(len(labels))
            for n in range(len(labels))
            if labels[p] == 1 and labels[n] == -1
        ]
        if any(labels):
            values.append(sum(pairs) / len(pairs) if pairs else 0.0)
    return values


METRICS = {
    "precision": (precision_at_k, looped_precision),
    "recall": (recall_at_k, looped_recall),
    "coverage": (lambda logits, truth, _: coverage(logits, truth), looped_coverage),
    "ranking": (lambda logits, truth, _: ranking_loss(logits, truth), looped_ranking_loss),
}


@pytest.fixture(params=METRICS.values(), ids=METRICS.keys())
def pair(request):
    return request.param


@pytest.mark.parametrize("name", METRICS)
@given(case=table([1, -1, 0]), k=st.integers(1, 2))
@settings(max_examples=150, deadline=None)
def test_equals_plain_loops_with_unknown_labels(name, case, k):
    metric, looped = METRICS[name]
    expected = looped(*case, k)
    if expected:
        np.testing.assert_allclose(metric(*case, k), np.mean(expected), rtol=0, atol=1e-12)
    else:
        with pytest.raises(UserError, match="no item"):
            metric(*case, k)


@pytest.mark.parametrize("kind", [np.float16, torch.float16, torch.bfloat16, torch.float64])
def test_any_precision_and_blocks_of_items(random_table, monkeypatch, pair, kind):
    metric, looped = pair
    monkeypatch.setattr(metrics_scores, "BLOCK", 50)
    logits, truth = random_table(60, 7, unknown=0.3, decimals=0)
    scores = (
        torch.from_numpy(logits).to(kind) if isinstance(kind, torch.dtype) else logits.astype(kind)
    )
    labels = torch.from_numpy(truth) if isinstance(kind, torch.dtype) else truth
    assert metric(scores, labels, 3) == pytest.approx(np.mean(looped(logits, truth, 3)), abs=1e-12)


def test_infinite_logits(pair):
    metric, looped = pair
    logits = np.array(
        [[-np.inf, np.inf, 0.0, -np.inf], [np.inf, np.inf, -np.inf, 1.0], [np.inf, 0.0, 1.0, 2.0]],
        np.float32,
    )
    truth = np.array([[1, -1, 0, -1], [1, 0, 1, -1], [-1, -1, -1, -1]], np.int8)
    assert metric(logits, truth, 2) == pytest.approx(np.mean(looped(logits, truth, 2)), abs=1e-12)


def test_equal_logits_rank_in_the_order_of_classes():
    assert precision_at_k(np.zeros((1, 40)), [[1] + [-1] * 39], 1) == 1.0
    assert precision_at_k(np.zeros((1, 40)), [[-1] * 39 + [1]], 39) == 0.0


@pytest.mark.parametrize("k", [0, 4, -1])
def test_k_outside_the_classes(k):
    for metric in (precision_at_k, recall_at_k):
        with pytest.raises(UserError, match="from 1 to the number of classes, 3"):
            metric(np.zeros((2, 3)), np.ones((2, 3)), k)


def test_items_without_known_labels_raise_an_error(pair):
    for items in (0, 2):
        with pytest.raises(UserError, match="no item"):
            pair[0](np.zeros((items, 3)), np.zeros((items, 3)), 1)
