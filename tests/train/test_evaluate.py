"""Logits of a whole table, in its order, by a model that is left as it was; and the figure that chooses the epoch."""

import numpy as np
import pytest
import torch

from spml import metrics
from spml.data import LabelTable
from spml.data.images.loader import Feed
from spml.train.evaluate import predict_logits, score

X = np.arange(14, dtype=np.float32).reshape(7, 2)
FEED = Feed(LabelTable(list("abcdefg"), ["one"], np.ones((7, 1)), x=X), None)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 50])
@pytest.mark.parametrize("training", [True, False])
def test_logits_are_those_of_evaluation_in_the_order_of_the_table(batch_size, training):
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5)).train(training)
    told = []
    found = predict_logits(model, FEED, batch_size, advance=told.append)
    assert found == pytest.approx(model[0](torch.from_numpy(X)).detach().numpy(), abs=1e-5)
    assert model.training is training and sum(told) == 7 and max(told) == min(batch_size, 7)
    assert (predict_logits(model, FEED, batch_size) == found).all()


def test_the_figure_is_map_in_percent_or_its_estimate_where_labels_are_observed():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 3)).astype(np.float32)
    complete = np.where(rng.random((40, 3)) < 0.4, 1, -1).astype(np.int8)
    observed = np.where(rng.random((40, 3)) < 0.5, complete, 0).clip(min=0).astype(np.int8)
    assert score(logits, complete, "complete") == pytest.approx(
        100 * metrics.average_precision(logits, complete).mean()
    )
    estimate = 100 * metrics.observed_average_precision(logits, observed).mean()
    assert score(logits, observed, "observed") == pytest.approx(estimate)
