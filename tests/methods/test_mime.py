"""MIME: loss, draws and pseudo-labels, added or ignored, against plain loops."""

import math
from functools import partial
from itertools import combinations

import pytest
import torch
from scipy import stats

from spml.keyed import normal
from spml.model.classifier import build_head
from tests.losses.common import create, embeddings, random_batch, value_and_gradient

CALL = {"epoch": 2, "epochs": 10}
IGNORE = {"rule": "ignore", "mean_inverse_positives": 0.4, "warmup": 2}


method = partial(create, "mime")


def live(loss, scores, epoch, epochs=6):
    """End an epoch; the pass over the items comes in parts and out of order."""
    if loss.wants_pass(epoch, epochs):
        for rows in torch.randperm(
            len(scores), generator=torch.Generator().manual_seed(epoch)
        ).split(7):
            loss.take_scores(scores[rows], rows)
    loss.end_epoch(epoch, epochs)


def batch(items=5, classes=7, size=4):
    logits, observed = random_batch(items, classes)
    return logits, observed, embeddings(items, classes, 2 * size + 1).double()


def formula(logits, table, features, noise=0.0, beta=0.7, eps=0.0):
    """The whole loss; `table` holds 1 for a label that counts as positive, nan for none."""
    size = features.shape[2] // 2
    mean, log_deviation, deviation = features.split([size, size, 1], dim=2)
    p = (logits + deviation.squeeze(2) * noise).sigmoid()
    entries = -torch.log(torch.where(table == 1, p, 1 - p) + eps)
    divergence = (mean**2 + log_deviation.exp() ** 2 - 1 - 2 * log_deviation).mean(dim=2) / 2
    return (torch.where(table.isnan(), 0.0, entries) + beta * divergence).mean()


@pytest.mark.parametrize("beta", [1e-4, 0.7])
@pytest.mark.parametrize("eps", [None, 1e-5])
def test_the_loss_of_the_mean_is_its_formula(beta, eps):
    logits, observed, features = batch()
    loss = method(observed, beta=beta, sample=False, eps=eps)
    value = loss(logits, observed, **CALL, index=torch.arange(5), features=features)
    expected = formula(logits, observed.double(), features, beta=beta, eps=eps or 0.0)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=0)


def test_the_loss_of_a_draw_is_its_formula():
    logits, observed, features = batch()
    loss = method(torch.zeros(30, 7), beta=0.7)
    index = torch.tensor([3, 29, 0, 11, 4])
    torch.manual_seed(8)
    loss.begin_epoch(2, 10)
    noise = normal(index, loss.salt, 7)
    value = loss(logits, observed, **CALL, index=index, features=features)
    torch.testing.assert_close(value, formula(logits, observed.double(), features, noise))


@pytest.mark.parametrize(("rule", "counted"), [("add", 1.0), ("ignore", math.nan)])
def test_marked_labels_are_positive_or_ignored(rule, counted):
    logits, observed, features = batch()
    loss = method(observed, rule=rule, beta=0.7, sample=False, mean_inverse_positives=0.5)
    loss.marked = (observed == 0) & (torch.arange(35).view(5, 7) % 3 == 0)
    value = loss(logits, observed, **CALL, index=torch.arange(5), features=features)
    table = torch.where(loss.marked, counted, observed.double())
    torch.testing.assert_close(value, formula(logits, table, features))
    assert loss.marked.sum() > 3


def test_a_drawn_logit_is_that_of_ten_drawn_embeddings():
    """Same distribution; slopes by the logs of deviations have the same mean and less noise."""
    items = 40_000
    torch.manual_seed(0)
    head = build_head("query-normal:6", 8, 3).double().eval()
    head.projection[-1].weight.data[6:] *= 3  # the rows of the deviations
    shown = head.detailed(torch.randn(1, 5, 8, dtype=torch.float64))
    logits, features = shown[0].detach(), shown[1].detach()
    weight, bias = head.read.weight.detach(), head.read.bias.detach()
    mean, logs, deviation = features[0, :, :6], features[0, :, 6:12], features[0, :, -1]
    drawn, ten = (logs.expand(items, -1, -1).clone().requires_grad_() for _ in range(2))

    ones = torch.ones(items, 3)
    loss = method(ones, beta=0.0, reduction="none")
    loss.begin_epoch(1, 1)
    norm = torch.linalg.vector_norm(weight * drawn.exp(), dim=-1, keepdim=True) / math.sqrt(10)
    embedded = torch.cat([mean.expand_as(drawn), drawn, norm], dim=-1)
    call = {"index": torch.arange(items), "features": embedded, **CALL}
    entries = loss(logits.expand(items, -1), ones, **call)  # -log p of positives
    ours = -entries.detach().expm1().log()
    noise = torch.randn(items, 10, 3, 6, dtype=torch.float64)
    theirs = ((mean + ten.exp()[:, None] * noise).mean(dim=1) * weight).sum(dim=-1) + bias

    error = deviation / math.sqrt(items)  # of a mean; that of a deviation is smaller
    for sample in (ours, theirs.detach()):
        assert ((sample.mean(dim=0) - logits[0]).abs() < 4 * error).all()
        assert ((sample.std(dim=0) - deviation).abs() < 4 * error).all()
        scaled = (sample - logits[0]) / deviation
        assert (scaled**3).mean(dim=0).abs().max() < 0.06
        assert ((scaled**4).mean(dim=0) - 3).abs().max() < 0.15
        # Classes are drawn independently.
        assert (torch.corrcoef(sample.T) - torch.eye(3)).abs().max() < 0.02
    for c in range(3):
        assert stats.ks_2samp(ours[:, c], theirs[:, c].detach()).pvalue > 0.001
    assert deviation.min() > 0.05

    (slope,) = torch.autograd.grad(entries.sum(), drawn)
    (literal,) = torch.autograd.grad(torch.nn.functional.softplus(-theirs).sum(), ten)
    error = ((slope.var(dim=0) + literal.var(dim=0)) / items).sqrt()
    assert ((slope.mean(dim=0) - literal.mean(dim=0)).abs() < 4.5 * error).all()
    assert (slope.var(dim=0) < literal.var(dim=0)).all()
    assert (slope.mean(dim=0).abs() > 5 * error).any()


def slope_at_zero(loss, observed):
    """Gradient on the logits 0 of the whole split."""
    call = {**CALL, "index": torch.arange(3), "features": torch.zeros(*observed.shape, 5)}
    logits = torch.zeros(observed.shape, dtype=torch.float64)
    return value_and_gradient(loss, logits, observed, **call)[1]


class TestAdd:
    def test_sure_labels_are_added_permanently(self):
        observed = random_batch(30, 4, seed=2)[1]
        loss, added = method(observed, theta=0.8, warmup=2), torch.zeros(30, 4, dtype=torch.bool)
        for epoch in range(1, 7):
            scores = torch.randn(30, 4, generator=torch.Generator().manual_seed(epoch)) * 2
            live(loss, scores, epoch)
            if 2 <= epoch < 6:
                sure = (scores.sigmoid() > 0.8) & (observed == 0)
                # New labels are sure, and some are no longer sure.
                assert (sure & ~added).any() and (epoch == 2 or (added & ~sure).any())
                added |= sure
            assert torch.equal(loss.marked, added)

    def test_known_labels_are_never_touched(self):
        observed = torch.tensor([[1, -1, 0]] * 3)
        loss = method(observed, warmup=1)
        live(loss, torch.full((3, 3), 50.0), 1)
        assert loss.marked.tolist() == [[False, False, True]] * 3
        slope = slope_at_zero(loss, observed)
        assert (slope[:, 1] > 0).all() and (slope[:, [0, 2]] < 0).all()
        loss.marked.fill_(True)  # a known negative of the batch stays negative all the same
        assert (slope_at_zero(loss, observed)[:, 1] > 0).all()

    def test_the_threshold_is_passed_strictly(self):
        observed = torch.zeros(3, 1)
        loss = method(observed, theta=0.5, warmup=1)
        live(loss, torch.tensor([[-0.01], [0.0], [0.01]]), 1)
        assert loss.marked[:, 0].tolist() == [False, False, True]
        none = method(observed, theta=1.0, warmup=1)
        live(none, torch.full((3, 1), 1e4), 1)
        assert not none.marked.any()

    def test_the_warm_up_is_the_first_epoch_that_adds(self):
        loss = method(torch.zeros(4, 2))
        assert [loss.wants_pass(epoch, 4) for epoch in range(1, 5)] == [False, True, True, False]
        later = method(torch.zeros(4, 2), warmup=5)
        assert [later.wants_pass(epoch, 6) for epoch in (4, 5, 6)] == [False, True, False]


class TestIgnore:
    def test_the_most_probable_of_each_class_are_ignored_and_chosen_anew(self):
        observed = random_batch(40, 5, seed=2)[1]
        observed[:, 0] = 0
        observed[:3, 0] = 1
        observed[:, 1] = observed[:, 1].clamp(max=0)  # no observed positive, nothing ignored
        observed[:, 2] = 1
        observed[:4, 2] = 0  # fewer unknown labels than are to be ignored
        # floor(n / 0.4) labels are ignored in each class
        counts = [math.floor(round(n / 0.4, 6)) for n in (observed == 1).sum(dim=0).tolist()]
        loss, seen, expected = method(observed, **IGNORE), [], torch.zeros(40, 5, dtype=torch.bool)
        assert counts[:3] == [7, 0, 90]
        for epoch in range(1, 7):
            scores = torch.randn(40, 5, generator=torch.Generator().manual_seed(epoch))
            live(loss, scores, epoch)
            if 2 <= epoch < 6:
                ranked = scores.masked_fill(observed != 0, -math.inf)
                places = ranked.argsort(dim=0, descending=True).argsort(dim=0)
                expected = (places < torch.tensor(counts)) & (observed == 0)
                seen.append(expected)
            assert torch.equal(loss.marked, expected)
        assert all(not torch.equal(a, b) for a, b in combinations(seen, 2))
        assert loss.scores is None

    def test_known_labels_are_never_ignored(self):
        observed = torch.tensor([[1, -1], [0, -1], [0, 1]])
        loss = method(observed, **{**IGNORE, "warmup": 1, "mean_inverse_positives": 0.1})
        live(loss, torch.tensor([[9.0, 9.0], [1.0, 9.0], [2.0, 9.0]]), 1)
        assert loss.marked.tolist() == [[False, False], [True, False], [True, False]]
        loss.marked.fill_(True)
        assert (slope_at_zero(loss, observed).sign().to(torch.int8) == -observed).all()
