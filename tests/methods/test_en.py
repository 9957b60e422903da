"""Expected negatives and their consistency terms, against plain loops."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from spml import losses
from spml.data import load
from spml.errors import UserError
from spml.methods.en import EXPECTED
from spml.train import Settings, fit
from tests.losses.common import random_batch, value_and_gradient

CALL = {"epoch": 2, "epochs": 10}


def method(observed, **options):
    return losses.create(
        "en", items=len(observed), classes=observed.shape[1], observed=observed, **options
    )


def marked(loss):
    return loss.labels == EXPECTED


class Loops:
    """The method by plain loops, as its docstring defines it."""

    def __init__(
        self, observed, k, momentum, start="observed", count="observed", cl=0.0, power=2.0
    ):
        self.s, self.k, self.momentum, self.start, self.count = (
            observed.tolist(),
            k,
            momentum,
            start,
            count,
        )
        self.cl, self.power = cl, power
        self.items, self.classes = range(len(self.s)), range(len(self.s[0]))
        self.mean = [[float(s == 1) for s in row] for row in self.s]
        self.visited, self.negatives = set(), set()

    def begin_epoch(self):
        self.negatives = set()
        for c in self.classes:
            positives = sum(row[c] == 1 for row in self.s)
            share = positives if self.count == "observed" else len(self.items) / len(self.classes)
            places = max(len(self.items) - round(self.k * share), 0)
            value = {
                i: {1: math.inf, -1: -math.inf, 0: self.mean[i][c]}[self.s[i][c]]
                for i in self.items
            }
            lowest = sorted(value.values())[:places]
            self.negatives |= {
                (i, c)
                for i in self.items
                if self.s[i][c] == 0 and lowest and value[i] <= lowest[-1]
            }

    def loss(self, logits, index):
        total = 0.0
        for row, i in zip(logits.tolist(), index.tolist(), strict=True):
            for c, z in enumerate(row):
                p, s = 1 / (1 + math.exp(-z)), self.s[i][c]
                if s == 1:
                    total -= math.log(p)
                elif s == -1 or (i, c) in self.negatives:
                    total -= math.log(1 - p)
                past = p if self.start == "first" and i not in self.visited else self.mean[i][c]
                if s != -1:
                    total += self.cl * abs(p - past) ** self.power
                self.mean[i][c] = self.momentum * past + (1 - self.momentum) * p
            self.visited.add(i)
        return total / logits.numel()


@pytest.mark.parametrize("start", ["observed", "first"])
@pytest.mark.parametrize("count", ["observed", "uniform"])
@pytest.mark.parametrize(("cl", "power"), [(0.0, 2.0), (0.7, 2.0), (0.7, 1.5)])
def test_three_epochs_are_the_definition(start, count, cl, power):
    table = random_batch(23, 18, seed=5)[1]  # more classes than are ranked together
    table[:, 3] = table[:, 3].clamp(max=0)  # a class without observed positives
    options = {"momentum": 0.6, "start": start, "count": count}
    loss = method(table, expected_positives=1.3, cl=cl, power=power, **options)
    loops = Loops(table, 1.3, cl=cl, power=power, **options)
    generator, shown = torch.Generator().manual_seed(0), set()
    for epoch in range(1, 4):
        loss.begin_epoch(epoch, 3)
        loops.begin_epoch()
        assert {tuple(pair) for pair in marked(loss).nonzero().tolist()} == loops.negatives
        shown.add(len(loops.negatives))
        for index in torch.randperm(23, generator=generator).split(7):
            logits = torch.randn(len(index), 18, generator=generator, dtype=torch.float64) * 3
            value = loss(logits, table[index], epoch=epoch, epochs=3, index=index)
            assert value.item() == pytest.approx(loops.loss(logits, index), rel=1e-6)
        torch.testing.assert_close(loss.mean, torch.tensor(loops.mean), rtol=1e-5, atol=1e-6)
    assert len(shown) > 1  # the first epoch is not like the others


def test_the_first_epoch_is_assume_negative():
    logits, table = random_batch(30, 7)
    table[5:] = table[5:].clamp(max=0)
    for start in ("observed", "first"):
        loss = method(table, start=start, expected_positives=2.0)
        call = {"epoch": 1, "epochs": 5, "index": torch.arange(30)}
        before = loss.eval()(logits, table, **call)  # the same before any epoch begins
        loss.begin_epoch(1, 5)
        assert before == loss(logits, table, **call) == losses.create("an")(logits, table)


def test_unknown_labels_that_are_not_expected_negatives_cost_nothing():
    table = torch.tensor([[1, 0], [0, 0], [0, 0], [0, 0]])
    loss = method(table, expected_positives=2.0, momentum=0.0)
    logits = torch.tensor([[0.0, 0], [3, -1], [1, 2], [-2, 1]], requires_grad=True)
    loss(logits, table, **CALL)
    loss.begin_epoch(2, 10)
    assert marked(loss).tolist() == [[False, True], [False, True], [True, True], [True, True]]
    loss(logits, table, **CALL).backward()
    assert (logits.grad[:, 0].sign().tolist()) == [-1, 0, 1, 1]


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


def test_training_reports_its_memory_and_refuses_more_than_is_free(
    scenes, quick, tmp_path, monkeypatch, capsys
):
    settings, options = replace(quick, method="en", epochs=1), {"scl": 1.0, "grid": 20}
    monkeypatch.setattr("spml.train.resolve.LARGE", 10**6)
    fit(scenes, settings, tmp_path / "run", options=options)
    assert "en keeps 1 MB for 128 items of 10 classes" in capsys.readouterr().out.splitlines()[0]
    fit(scenes, settings, tmp_path / "small")
    assert "en keeps" not in capsys.readouterr().out
    monkeypatch.setattr("spml.train.resolve.free_memory", lambda device: 10**6)
    with pytest.raises(
        UserError,
        match=r"en keeps 1 MB .*, but only 1 MB of memory are free; give other options or",
    ):
        fit(scenes, settings, tmp_path / "big", options=options, quiet=True)
    assert not (tmp_path / "big").exists()


def test_heat_maps_are_refused_without_a_class_map(scenes, quick, tmp_path):
    labels = np.array([[1, -1], [-1, 1]] * 20, np.int8)
    np.savez(
        tmp_path / "f.npz",
        x=np.ones((40, 3), np.float32),
        labels=labels,
        classes=np.array(["a", "b"]),
    )
    vectors = load(tmp_path / "f.npz")
    for data, settings in (
        (vectors, Settings(method="en", accelerator="cpu")),
        (scenes, replace(quick, method="en", head="query")),
    ):
        with pytest.raises(UserError, match=r"en with scl needs a class map .* give --head linear"):
            fit(data, settings, tmp_path / "run", options={"scl": 1.0, "grid": 2}, quiet=True)
    fit(vectors, Settings(method="en", accelerator="cpu", epochs=2), tmp_path / "run", quiet=True)


def test_linear_init_sees_whole_pictures(scenes, quick, tmp_path):
    settings = replace(quick, method="en", epochs=1, linear_init=1, crop=0.5, flip=True)
    result = fit(scenes, settings, tmp_path / "run", options={"scl": 1.0, "grid": 4}, quiet=True)
    assert result["options"]["scl"] == 1.0
    state = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["method"]
    assert state["heat.seen"].all() and state["seen"].all()
