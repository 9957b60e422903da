"""The contrastive loss of label embeddings and its queue, against plain loops."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode

from spml.methods.parts import contrastive
from spml.methods.parts.contrastive import LabelQueue


def drawn(items, classes=4, width=3, seed=0, share=0.4, views=2):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(views, items, classes, width, generator=generator, dtype=torch.float64)
    return embeddings, torch.rand(items, classes, generator=generator) < share


def entries(embeddings, positive, unit=True):
    """(vectors of the views, class) of each entry, in order."""
    vectors = embeddings[:, positive].detach().transpose(0, 1)
    vectors = F.normalize(vectors, dim=-1) if unit else vectors
    return list(zip(vectors, positive.nonzero()[:, 1].tolist(), strict=True))


def by_loops(batch, queue, temperature, size=None):
    """The loss; with a size it is averaged over the newest entries, else over the batch."""
    if size is not None:
        queue = queue[-(size - len(batch)) :] if len(batch) < size else []
    pairs = [(v, c) for vectors, c in batch + queue for v in vectors]
    anchors = len(pairs) if size is not None else sum(len(vectors) for vectors, _ in batch)
    values, classes = [], torch.tensor([c for _, c in pairs])
    for i, (u, c) in enumerate(pairs[:anchors]):
        near = torch.stack([v for v, _ in pairs]) @ u / temperature
        others = torch.arange(len(pairs)) != i
        partners = others & (classes == c)
        if partners.any():
            values.append((near[others].logsumexp(dim=0) - near[partners].mean()).item())
    return sum(values) / len(values) if values else 0.0


def same(queue, expected):
    """Check that the queue holds these entries, oldest first."""
    filled = queue.classes >= 0
    assert queue.classes[filled].tolist() == [c for _, c in expected]
    if expected:
        units = torch.stack([u for u, _ in expected]).float()
        torch.testing.assert_close(queue.embeddings[filled], units)


@pytest.mark.parametrize("temperature", [0.5, 0.1])
@pytest.mark.parametrize("share", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("size", [0, 7])
@pytest.mark.parametrize("form", [{}, {"unit": False}, {"views": 1, "whole": False}])
def test_loss_and_queue_are_their_definitions_over_many_steps(temperature, share, size, form):
    """A queue of 7 places is filled, wraps around, and gets more than it holds."""
    queue, past = LabelQueue(width=3, size=size, temperature=temperature, **form), []
    whole, unit = form.get("whole", True), form.get("unit", True)
    for step, items in enumerate([1, 2, 5, 1, 3, 8]):
        embeddings, positive = drawn(items, seed=step, share=share, views=form.get("views", 2))
        batch = entries(embeddings, positive, unit)
        value = queue.loss(embeddings, positive)
        assert value.dtype == torch.float64
        expected = by_loops(batch, past, temperature, size if whole else None)
        assert value.item() == pytest.approx(expected, abs=1e-6, rel=1e-6)
        queue.push(embeddings, positive)
        past = (past + batch)[-size:] if size else []
        same(queue, past)


@pytest.mark.parametrize("whole", [True, False])
def test_the_slope_is_that_of_the_value(whole):
    queue = LabelQueue(width=3, size=20, whole=whole)
    queue.double().push(*drawn(3, seed=1))
    embeddings, positive = drawn(3, seed=2)
    assert torch.autograd.gradcheck(lambda e: queue.loss(e, positive), embeddings.requires_grad_())
    (slope,) = torch.autograd.grad(queue.loss(embeddings, positive), embeddings)
    assert (slope[:, positive].abs().sum(dim=-1) > 0).any() and (slope[:, ~positive] == 0).all()


def test_averaging_over_the_queue_divides_the_gradient_by_about_its_share_of_the_queue():
    """In the released code a batch of 32 has a ninth of the gradient of a mean over the batch."""
    slopes = []
    for whole in (True, False):
        torch.manual_seed(0)
        queue = LabelQueue(width=8, size=90, whole=whole)
        every = torch.ones(9, 10, dtype=torch.bool)
        queue.push(torch.randn(2, 9, 10, 8), every)
        embeddings = torch.randn(2, 1, 10, 8, requires_grad=True)
        queue.loss(embeddings, every[:1]).backward()
        slopes.append(embeddings.grad.norm().item())
    assert 4 < slopes[1] / slopes[0] < 10


NONE, ONE, TWO = [[0, 0, 0]] * 2, [[0, 1, 0], [0, 0, 0]], [[0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("positive", "filled"), [(NONE, False), (NONE, True), (ONE, False), (TWO, False)]
)
@pytest.mark.parametrize("whole", [True, False])
def test_without_a_pair_it_is_0_and_so_is_its_slope(positive, filled, whole):
    queue = LabelQueue(width=3, size=4, views=1, whole=whole)
    if filled and not whole:
        queue.push(torch.ones(1, 4, 3, 3), torch.ones(4, 3, dtype=torch.bool))
    embeddings = torch.randn(1, 2, 3, 3, requires_grad=True)
    value = queue.loss(embeddings, torch.tensor(positive, dtype=torch.bool))
    value.backward()
    assert value == 0 and (embeddings.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 6e4])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_value_slope_and_queue_are_finite(dtype, scale, share):
    queue = LabelQueue(width=3, size=6)
    for step in range(3):
        embeddings, positive = drawn(4, seed=step, share=share)
        scaled = (embeddings.clamp(-1, 1) * scale).to(dtype).requires_grad_()
        value = queue.loss(scaled, positive)
        value.backward()
        queue.push(scaled, positive)
        assert value.isfinite() and value.dtype == torch.float32 and scaled.grad.isfinite().all()
        assert queue.embeddings.isfinite().all() and not queue.embeddings.requires_grad


def test_the_gradient_of_a_zero_embedding_is_bounded():
    embeddings = torch.randn(2, 3, 2, 3)
    embeddings[:, 0] = 0
    embeddings.requires_grad_()
    LabelQueue(width=3).loss(embeddings, torch.ones(3, 2, dtype=torch.bool)).backward()
    assert embeddings.grad.abs().max() < 2 / contrastive.SHORTEST


def test_inside_autocast_it_is_computed_in_float32():
    embeddings, positive = drawn(6)
    queue = LabelQueue(width=3, size=6)
    expected = queue.loss(embeddings.float(), positive)
    with torch.autocast("cpu", torch.bfloat16):
        assert queue.loss(embeddings.float(), positive) == expected


@pytest.mark.parametrize("limit", [1, 5, 17, 23])
def test_entries_beyond_the_limit_are_thinned_out_evenly(limit):
    embeddings, positive = drawn(20, share=0.6)
    places = positive.flatten().nonzero().flatten()
    assert len(places) > limit
    chosen = contrastive.spread(positive.flatten(), limit)
    assert len(chosen) == limit and positive.flatten()[chosen].all()
    rank = torch.searchsorted(places, chosen)
    gaps = torch.cat([rank, torch.tensor([len(places) + rank[0]])]).diff()
    assert gaps.min() >= len(places) // limit and gaps.max() <= -(-len(places) // limit) + 1
    thinned = torch.zeros_like(positive.flatten())
    thinned[chosen] = True
    queue = LabelQueue(width=3, size=4, limit=limit)
    expected = by_loops(entries(embeddings, thinned.view_as(positive)), [], 0.5, 4)
    assert queue.loss(embeddings, positive).item() == pytest.approx(expected)


def test_nothing_waits_for_the_device():
    """No shape depends on a value: the loss runs on fake tensors, which have no values."""
    with FakeTensorMode():
        queue = LabelQueue(width=3, size=6, limit=9)
        embeddings, positive = torch.randn(2, 5, 4, 3), torch.rand(5, 4) < 0.5
        assert queue.loss(embeddings, positive).shape == ()
        queue.push(embeddings, positive)
        assert queue.classes.shape == (6,) and queue.embeddings.shape == (6, 2, 3)
