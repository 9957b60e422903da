"""CRISP: class priors and the risk that holds predictions to them, against plain loops."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from spml import losses
from spml.methods.parts.priors import estimate_priors
from tests.losses.common import create, random_batch, value_and_gradient

CALL = {"epoch": 2, "epochs": 10}


def prior_by_loops(scores, labels, delta, tau):
    n, n_p = len(scores), labels.count(1)
    if n_p == 0:
        return math.nan
    best, prior = math.inf, math.nan
    slack = math.sqrt(math.log(4 / delta) / (2 * n)) + math.sqrt(math.log(4 / delta) / (2 * n_p))
    for z in sorted(set(scores), reverse=True):
        q = sum(f >= z and s != -1 for f, s in zip(scores, labels, strict=True)) / n
        q_p = sum(f >= z and s == 1 for f, s in zip(scores, labels, strict=True)) / n_p
        if q_p > 0 and q / q_p + (1 + tau) / q_p * slack < best - 1e-12:
            best, prior = q / q_p + (1 + tau) / q_p * slack, q / q_p
    return min(prior, 1.0)


class TestPriors:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("steps", [3, 1000])
    def test_they_follow_the_definition(self, seed, steps):
        rng = np.random.default_rng(seed)
        scores = rng.integers(0, steps, (60, 6)) / steps  # ties, with few steps
        labels = rng.choice([-1, 0, 0, 0, 1], (60, 6))
        labels[:, 0] = rng.choice([0, 1], 60)
        labels[labels[:, 1] == 1, 1] = 0
        labels[:, 2] = 1
        priors = estimate_priors(scores, labels, 0.2, 0.05)
        columns = zip(scores.T.tolist(), labels.T.tolist(), strict=True)
        expected = [prior_by_loops(*column, 0.2, 0.05) for column in columns]
        assert priors.dtype == torch.float64
        np.testing.assert_allclose(priors.numpy(), expected, rtol=1e-12)
        assert math.isnan(priors[1]) and priors[2] == 1
        known = priors[~priors.isnan()]
        assert ((known > 0) & (known <= 1)).all()

    @pytest.mark.parametrize("prior", [0.05, 0.2, 0.5])
    def test_a_prior_is_a_close_upper_bound_if_positives_are_observed_at_random(self, prior):
        rng = np.random.default_rng(0)
        truth = rng.random((20_000, 3)) < prior
        scores = rng.normal(truth * 4.0, 1.0)
        observed = (truth & (rng.random(truth.shape) < 0.4)).astype(np.int8)
        priors = estimate_priors(scores, observed).numpy()
        assert (priors > 0.95 * prior).all() and (priors < 1.25 * prior + 0.01).all()

    @pytest.mark.parametrize(
        ("scores", "options", "message"),
        [
            (torch.zeros(3, 2), {}, "must both be items by classes"),
            (torch.zeros(2), {}, "must both be items by classes"),
            (torch.zeros(2, 2), {"delta": 0}, "delta is a probability"),
            (torch.zeros(2, 2), {"delta": 1}, "delta is a probability"),
            (torch.zeros(2, 2), {"tau": -0.1}, "tau not negative"),
            (torch.full((2, 2), math.nan), {}, "NaN"),
        ],
    )
    def test_invalid_arguments_are_refused(self, scores, options, message):
        with pytest.raises(ValueError, match=message):
            estimate_priors(scores, torch.zeros(2, 2), **options)


PRIORS = [0.5, 0.25, 0.75, 0.125, math.nan, 1.0, 0.5]


ready = partial(create, "crisp", priors=PRIORS, warmup=1, reduction="sum_classes")


def risk(p, s, mean, counts, items, weights):
    """Eq. 7 of a batch, known negatives added."""
    priors = torch.tensor(PRIORS, dtype=p.dtype)
    known = (counts > 0) & ~priors.isnan()
    positive = weights[0] * priors * items / counts * ((1 - p) * (s == 1)).mean(dim=0)
    total = positive + weights[1] * (mean - priors).abs()
    return total[known].sum() + (p * (s == -1)).mean(dim=0).sum()


@pytest.mark.parametrize("weights", [(2.0, 1.0), (3.0, 0.5)])
def test_the_loss_is_its_formula_over_two_steps(weights):
    table = random_batch(40, 7, seed=3)[1]
    table[:, 3] = table[:, 3].clamp(max=0)  # a class without observed positives
    options = {"positive_weight": weights[0], "prior_weight": weights[1], "momentum": 0.8}
    loss, mean = ready(table, **options), None
    for step in range(2):
        p, s = random_batch(10, 7, seed=step)[0].sigmoid(), table[step * 10 : step * 10 + 10]
        now = p.mean(dim=0)
        mean = now if mean is None else 0.8 * mean + 0.2 * now
        expected = risk(p, s, mean, (table == 1).sum(dim=0), 40, weights)
        assert loss(p.logit(), s, **CALL).item() == pytest.approx(expected.item(), rel=1e-6)
        torch.testing.assert_close(loss.running, mean.float())


def test_the_gradient_has_the_size_of_the_batch_and_the_sign_of_the_running_mean():
    table = torch.ones(4, 7, dtype=torch.int8)
    unknown, logits = torch.zeros(2, 7, dtype=torch.int8), torch.zeros(2, 7, dtype=torch.float64)
    loss = ready(table, momentum=0.99)
    loss.running.copy_(torch.tensor([0.9, 0.0, 0.9, 0.9, 0.5, 0.0, 0.0]))
    _, gradient = value_and_gradient(loss, logits, unknown, **CALL)
    signs = torch.tensor([1, -1, 1, 1, 0, -1, -1], dtype=torch.float64)
    torch.testing.assert_close(gradient, (signs * 0.25 / 2).expand(2, 7))


def test_a_known_negative_is_moved_by_its_own_term_only():
    table = torch.ones(4, 7, dtype=torch.int8)
    observed, logits = torch.zeros(2, 7, dtype=torch.int8), torch.zeros(2, 7, dtype=torch.float64)
    observed[0] = -1
    loss = ready(table, prior_weight=50.0)
    loss.running.copy_(torch.zeros(7))
    _, gradient = value_and_gradient(loss, logits, observed, **CALL)
    torch.testing.assert_close(gradient[0], torch.full((7,), 0.25 / 2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("scales", "epochs", "length"),
    [([0.0, 0.3, 9.0], 30, 3), ([9.0], 30, 1), ([0.0, 0.0], 4, 2), ([0.0], 2, 1), ([], 1, 1)],
)
def test_by_default_the_warm_up_ends_when_half_of_the_loss_is_learned(scales, epochs, length):
    logits, table = random_batch(30, 4)
    loss = create("crisp", table).eval()
    share = (table == 1).double().mean(dim=0)
    constant = losses.create("an")(share.logit().expand(30, 4), table).item()
    for epoch, scale in enumerate(scales, start=1):
        assert loss.wants_pass(epoch, epochs) and loss.priors.isnan().all()
        scores = share.logit() + scale * torch.where(table == 1, 1.0, -1.0)
        loss.take_scores(scores, torch.arange(30))
        loss.end_epoch(epoch, epochs)
        ratio = losses.create("an")(scores, table).item() / constant
        expected = {"relative_loss": pytest.approx(ratio, rel=1e-5)}
        if epoch == length:
            expected |= {"warmup": length, "positives": loss.priors.nansum().item()}
        assert loss.record(epoch, epochs) == expected
    assert loss.warmup_epochs(epochs) == length
    warm = losses.create("an")(logits, table)
    loss.priors.fill_(0.3)
    assert loss(logits, table, epoch=length, epochs=epochs) == warm
    assert loss(logits, table, epoch=length + 1, epochs=epochs) != warm
    loss.carry_over()
    assert loss.warmup_epochs(epochs) == max(epochs // 2, 1)


def test_a_warm_up_that_is_set_is_not_recorded():
    logits, table = random_batch(30, 4)
    for options, recorded in (({}, True), ({"warmup": 1}, False)):
        loss = create("crisp", table, **options)
        loss.take_scores(logits, torch.arange(30))
        loss.end_epoch(1, 9)
        assert bool(loss.record(1, 9)) == recorded
        assert loss.record(9, 9) == {}  # no pass follows the last epoch
    assert create("crisp", table, priors=[0.5] * 4).record(3, 9) == {}


def test_priors_are_estimated_after_the_warm_up_and_stored():
    logits, table = random_batch(30, 4)
    table[:, 2] = table[:, 2].clamp(max=0)
    loss = create("crisp", table, warmup=2)
    assert [loss.wants_pass(epoch, 5) for epoch in range(1, 6)] == [False, True, True, True, False]
    warm = loss(logits, table, epoch=2, epochs=5)
    assert warm == losses.create("an")(logits, table)
    loss.end_epoch(1, 5)
    assert loss.priors.isnan().all()
    for rows in torch.randperm(30).split(7):
        loss.take_scores(logits[rows], rows)
    loss.end_epoch(2, 5)
    expected = estimate_priors(logits.float(), table).float()
    torch.testing.assert_close(loss.priors, expected, equal_nan=True)
    assert loss.priors.isnan().tolist() == [False, False, True, False]
    torch.testing.assert_close(loss.running, logits.float().sigmoid().mean(dim=0))
    assert loss.scores is None and not loss.wants_pass(5, 5)
    assert not ready(torch.zeros(5, 7)).wants_pass(1, 3)  # priors are given
