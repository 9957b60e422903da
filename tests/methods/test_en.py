"""Expected negatives and their consistency terms, against their definition."""

import math
from functools import partial

import pytest
import torch

from spml.methods.en import EXPECTED
from tests.losses.common import create, random_batch, value_and_gradient

CALL = {"epoch": 2, "epochs": 10}


method = partial(create, "en")


def marked(loss):
    return loss.labels == EXPECTED


class Definition:
    """The method on whole tables, as its notes define it."""

    def __init__(self, observed, k, momentum, start, count, cl, power):
        self.s, self.momentum, self.start, self.cl, self.power = (
            observed,
            momentum,
            start,
            cl,
            power,
        )
        items, classes = observed.shape
        positives = (observed == 1).sum(dim=0).tolist()
        shares = positives if count == "observed" else [items / classes] * classes
        self.places = [max(items - round(k * share), 0) for share in shares]
        self.mean = (observed == 1).double()
        self.visited = torch.zeros(items, 1, dtype=torch.bool)

    def begin_epoch(self):
        value = self.mean.masked_fill(self.s == 1, math.inf).masked_fill(self.s == -1, -math.inf)
        ranked = [[-math.inf, *sorted(column)] for column in value.T.tolist()]
        last = [column[places] for column, places in zip(ranked, self.places, strict=True)]
        self.negative = (self.s == 0) & (value <= torch.tensor(last, dtype=torch.float64))

    def loss(self, logits, index):
        p, s, past = logits.sigmoid(), self.s[index], self.mean[index]
        if self.start == "first":
            past = torch.where(self.visited[index], past, p)
        absent = torch.where((s == -1) | self.negative[index], -(1 - p).log(), 0.0)
        consistency = self.cl * (p - past).abs() ** self.power
        entries = torch.where(s == 1, -p.log(), absent) + torch.where(s == -1, 0.0, consistency)
        self.mean[index] = self.momentum * past + (1 - self.momentum) * p
        self.visited[index] = True
        return entries.mean().item()


@pytest.mark.parametrize("start", ["observed", "first"])
@pytest.mark.parametrize("count", ["observed", "uniform"])
@pytest.mark.parametrize(("cl", "power"), [(0.0, 2.0), (0.7, 2.0), (0.7, 1.5)])
def test_three_epochs_are_the_definition(start, count, cl, power):
    table = random_batch(23, 18, seed=5)[1]
    table[:, 3] = table[:, 3].clamp(max=0)  # a class without observed positives
    options = {"momentum": 0.6, "start": start, "count": count}
    loss = method(table, expected_positives=1.3, cl=cl, power=power, **options)
    wanted = Definition(table, 1.3, cl=cl, power=power, **options)
    generator, shown = torch.Generator().manual_seed(0), set()
    for epoch in range(1, 4):
        loss.begin_epoch(epoch, 3)
        wanted.begin_epoch()
        assert torch.equal(marked(loss), wanted.negative)
        shown.add(int(wanted.negative.sum()))
        for index in torch.randperm(23, generator=generator).split(7):
            logits = torch.randn(len(index), 18, generator=generator, dtype=torch.float64) * 3
            value = loss(logits, table[index], epoch=epoch, epochs=3, index=index)
            assert value.item() == pytest.approx(wanted.loss(logits, index), rel=1e-6)
        torch.testing.assert_close(loss.mean, wanted.mean.float(), rtol=1e-5, atol=1e-6)
    assert len(shown) > 1  # the first epoch is not like the others


def test_known_labels_are_in_the_ranking_and_never_marked():
    table = torch.tensor([[1], [1], [-1], [-1], [0], [0]])
    loss = method(table, expected_positives=1.5)
    loss.mean[:, 0] = torch.tensor([0.0, 0.1, 0.9, 0.8, 0.4, 0.6])
    loss.begin_epoch(2, 3)  # three negatives, two of them known
    assert loss.labels.flatten().tolist() == [1, 1, -1, -1, EXPECTED, 0]
    for k, expected in ((0.0, [EXPECTED] * 2), (2.0, [0, 0]), (9.0, [0, 0])):
        other = method(table, expected_positives=k)
        other.mean.copy_(loss.mean)
        other.begin_epoch(2, 3)
        assert other.labels.flatten().tolist() == [1, 1, -1, -1, *expected]


def test_ties_at_random_fill_the_places_and_follow_the_seed():
    table = torch.zeros(100, 3, dtype=torch.int8)
    table[:20, 0] = table[:10, 1] = 1
    table[50:80, 1] = -1
    chosen = []
    for seed in (0, 0, 1):
        loss = method(table, expected_positives=2.0, ties="random")
        torch.manual_seed(seed)
        loss.begin_epoch(1, 3)
        chosen.append(marked(loss))
        assert chosen[-1].sum(dim=0).tolist() == [60, 80 - 30, 100]
    assert torch.equal(chosen[0], chosen[1]) and not torch.equal(chosen[0], chosen[2])
    loss.mean[20:, 0] = torch.linspace(0, 1, 80)
    loss.begin_epoch(2, 3)
    # Without ties nothing is random.
    assert marked(loss)[:, 0].nonzero().flatten().tolist() == list(range(20, 80))


def test_each_consistency_term_counts_and_no_known_negative_is_raised():
    logits, table = random_batch(6, 4)
    features = torch.randn(6, 4, 3, 3, dtype=torch.float64)
    call = {**CALL, "index": torch.arange(6), "features": features}
    values, gradients = {}, {}
    for name, weights in {"none": {}, "cl": {"cl": 50.0}, "scl": {"scl": 50.0}}.items():
        loss = method(table, momentum=0.5, grid=3, **weights)
        # The stored means lie above the next batch.
        loss(logits + 5, table, **{**call, "features": features + 5})
        call["features"] = features.requires_grad_()
        values[name], gradients[name] = value_and_gradient(loss, logits, table, **call)
        (slope,) = torch.autograd.grad(
            loss(logits.requires_grad_(), table, **call), features, allow_unused=True
        )
        assert (slope is not None) == (name == "scl")
        assert slope is None or ((slope != 0).any(dim=(2, 3)) == (table != -1)).all()
        assert (gradients[name][table == -1] >= 0).all()
    assert values["cl"] > values["none"] + 0.1 and values["scl"] > values["none"] + 0.1
    assert (gradients["cl"] - gradients["none"]).abs().max() > 0.01
