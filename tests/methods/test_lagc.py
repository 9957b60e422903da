"""LAGC against plain loops, in both parts of its training, and through a run."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from spml import losses
from spml.model import Classifier
from spml.train.device import Processes
from spml.train.resolve import resolve
from spml.train.step import Step
from tests.losses.common import random_batch
from tests.methods.test_contrastive import by_loops, entries

FIRST, SECOND = {"epoch": 5, "epochs": 10}, {"epoch": 6, "epochs": 10}
WIDTH, QUEUE = 6, 30


def batch(items=5, classes=7, seed=0):
    """Logits, labels of all three kinds, the strong view's logits and both views' embeddings."""
    generator = torch.Generator().manual_seed(seed + 100)
    logits, observed = random_batch(items, classes, seed)
    views = torch.randn(items, classes, generator=generator, dtype=torch.float64) * 2
    features = torch.randn(2 * items, classes, WIDTH, generator=generator, dtype=torch.float64)
    return logits, observed, views, features


def method(seed=0, **options):
    torch.manual_seed(seed)
    loss = losses.create("lagc", size=3, queue=QUEUE, **options).double()
    loss.prepare(torch.zeros(1, 7, WIDTH, dtype=torch.float64))
    return loss


def called(loss, inputs, **call):
    logits, observed, views, features = inputs
    return loss(logits, observed, views=views, features=features, **call)


def formula(loss, inputs, past, *, tau, lam=1.0, lac=0.0):
    """The loss from its definition, and the labels that go into the queue, with both views."""
    logits, observed, views, features = inputs
    p, strong = logits.sigmoid(), views.sigmoid()
    q = p + (observed == 1)
    present = (q >= tau) & (observed != -1)
    absent = (q < 1 - tau) | (observed == -1)
    known = -torch.where(observed == 1, p, 1 - p).log()
    consistent = -torch.cat([strong[present], 1 - strong[absent & ~present]]).log()
    first, _, second = loss.projection.layers
    hidden = (features @ first.weight.T + first.bias).clamp(min=0)
    embeddings = hidden @ second.weight.T + second.bias
    pairs = entries(torch.stack([embeddings[: len(p)], embeddings[len(p) :]]), present)
    value = known.mean() + lam * consistent.mean()
    return value.item() + lac * by_loops(pairs, past, 0.5, size=QUEUE), pairs


@pytest.mark.parametrize(("lam", "lac"), [(1.0, 1.0), (0.3, 2.0)])
def test_the_loss_is_its_formula_in_both_parts(lam, lac):
    loss, past = method(lam=lam, lac=lac), []
    for step in range(2):
        inputs = batch(seed=step)
        value, _ = formula(loss, inputs, past, tau=0.6, lam=lam)
        assert called(loss, inputs, **FIRST).item() == pytest.approx(value)
        assert (loss.queue.classes == -1).all()  # filled in the second part
    for step in range(4):
        inputs = batch(seed=step)
        value, pairs = formula(loss, inputs, past, tau=0.9, lam=lam, lac=lac)
        assert len(pairs) < QUEUE
        assert called(loss, inputs, **SECOND).item() == pytest.approx(value, abs=1e-6)
        past = past + pairs
    assert len(past) > QUEUE  # the oldest have left


@pytest.mark.parametrize("call", [FIRST, SECOND])
def test_the_slope_is_that_of_the_value(call):
    loss = method()
    called(loss, batch(seed=3), **SECOND)
    loss.eval()  # remembers nothing
    logits, observed, views, features = batch()
    inputs = [each.requires_grad_() for each in (logits, views, features)]
    at = lambda z, v, f: loss(z, observed, views=v, features=f, **call)  # noqa: E731
    assert torch.autograd.gradcheck(at, inputs)


def test_each_term_trains_its_own_inputs():
    def trained(**options):
        logits, observed, views, features = batch()
        leaves = [t.requires_grad_() for t in (logits, views, features)]
        loss = method(**options)
        called(loss, (logits, observed, views, features), **SECOND).backward()
        slopes = [*(leaf.grad for leaf in leaves), loss.projection.layers[0].weight.grad]
        return [slope is not None and bool(slope.abs().sum() > 0) for slope in slopes]

    assert trained() == [True, True, True, True]
    assert trained(lam=0.0) == [True, False, True, True]
    assert trained(lac=0.0) == [True, True, False, False]


@pytest.mark.parametrize(
    ("tau", "signs"),
    [(0.5, [1, 1, -1, -1, -1, -1]), (0.75, [1, 0, 0, 0, -1, -1]), (1.0, [0, 0, 0, 0, 0, -1])],
)
def test_a_probability_means_present_absent_or_unsure(tau, signs):
    """At tau itself the label is present; at 1 - tau it is not yet absent."""
    logits = torch.tensor([[-3.0, -math.log(3), 0.0, 0.5, math.log(3), 0.0]], dtype=torch.float64)
    labels = torch.tensor([[0, 0, 0, 0, 0, 1]])
    views = torch.zeros_like(logits).requires_grad_()
    loss = losses.create("lagc", first=1.0, tau=tau)
    called(loss, (logits, labels, views, torch.zeros(2, 6, 4)), epoch=1, epochs=1).backward()
    assert views.grad.sign().tolist() == [signs]


def test_without_sure_labels_no_term_is_added():
    logits = torch.zeros(2, 7, dtype=torch.float64, requires_grad=True)
    unknown, views = torch.zeros(2, 7), torch.ones(2, 7, dtype=torch.float64, requires_grad=True)
    for call in (FIRST, SECOND):
        value = called(method(), (logits, unknown, views, batch()[3][:4]), **call)
        assert value.item() == pytest.approx(math.log(2))
        value.backward()
        assert (views.grad == 0).all()


@pytest.mark.parametrize(
    ("first", "epochs", "second"),
    [(0.5, 10, 6), (0.5, 3, 3), (0.0, 4, 1), (1.0, 4, None), (0.55, 20, 12), (0.5, 1, 1)],
)
def test_the_second_part_starts_after_the_first_share_of_epochs(first, epochs, second):
    inputs = batch()
    before = []
    for epoch in range(1, epochs + 1):
        loss = method(first=first)
        called(loss, inputs, epoch=epoch, epochs=epochs)
        before.append(bool((loss.queue.classes == -1).all()))
    assert before.index(False) + 1 == second if second else all(before)


def test_its_stages_are_those_of_its_terms():
    loss = losses.create("lagc", first=0.3)
    assert [loss.stage(epoch, 10) for epoch in (1, 3, 4, 10)] == [(0, 3)] * 2 + [(3, 10)] * 2
    assert losses.create("lagc", first=1.0).stage(4, 4) == (0, 4)
    assert losses.create("gr").stage(3, 4) == (0, 4)


def eight(scenes):
    """Pictures and labels of eight items."""
    table = scenes.observed
    return torch.from_numpy(table.x[:8]), torch.from_numpy(table.labels[:8])


class TestRun:
    def test_a_step_does_not_depend_on_how_the_batch_is_ordered(self, scenes, quick):
        settings = resolve(replace(quick, method="lagc", flip=True), scenes)
        x, observed = eight(scenes)
        torch.manual_seed(0)
        model = Classifier.build("tiny", 10, head="query").eval()  # no batch statistics, no dropout
        values = []
        for rows in (np.arange(8), np.array([5, 0, 7, 2, 1, 4, 6, 3])):
            torch.manual_seed(0)
            loss = losses.create("lagc", lac=0.0)
            index = torch.from_numpy(rows)
            step = Step(lambda part: model(part, True), loss, settings, Processes())
            values.append(step.loss(x[index], observed[index], index, rows, 3).item())
        assert values[0] == pytest.approx(values[1])


def test_the_published_head_has_151_million_parameters():
    """For 80 classes on ResNet-50, counted on the meta device."""
    with torch.device("meta"):
        model = Classifier.build("resnet50", 80, head="query")
    count = sum(p.numel() for p in model.head.parameters())
    assert 150e6 < count < 152e6
