"""GR Loss with learned parts: value and gradients, and the effect on k_hat and v."""

import pytest
import torch
import torch.nn.functional as F

from spml import losses
from tests.losses.common import random_batch

CALL = {"epoch": 3, "epochs": 8}
CLASSES = 7


def method(**options):
    return losses.create("gr_learnable", classes=CLASSES, **options)


def moved(**options):
    """A method in float64 whose parameters differ between classes."""
    loss = method(**options).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter += torch.randn(CLASSES, generator=generator, dtype=torch.float64) / 2
    return loss


def gce(p, q):
    return -p.log() if q == 0 else (1 - p**q) / q


def formula(z, s, w, b, mu, sigma, constraint, q1):
    """The loss of each entry, with p detached in k_hat and v."""
    p, held, unknown = z.sigmoid(), z.sigmoid().detach(), s == 0
    k, v = torch.sigmoid(w * held + b), torch.exp(-((held - mu) ** 2) / (2 * sigma**2))
    if constraint == "class":
        v = v * unknown.sum(dim=0) / (v * unknown).sum(dim=0)
    if constraint == "batch":
        v = v / v[unknown].mean()
    present, absent = gce(p, 0.3), gce(1 - p, 0.7)
    known = torch.where(s == 1, gce(p, q1), absent)
    return torch.where(unknown, v * (k * present + (1 - k) * absent), known)


@pytest.mark.parametrize("constraint", ["class", "batch", "none", "scheduled"])
@pytest.mark.parametrize("variant", ["official", "paper"])
def test_value_and_all_gradients_are_the_formula(constraint, variant):
    logits, observed = random_batch()
    learned = constraint != "scheduled"
    options = {"constraint": constraint} if learned else {"learn_alpha": False}
    loss = moved(variant=variant, q2=0.3, q3=0.7, **options)
    own = [parameter.detach().clone().requires_grad_() for parameter in loss.parameters()]
    y, z = (logits.clone().requires_grad_() for _ in range(2))
    mu, sigma = (own[2], 0.1 + F.softplus(own[3])) if learned else (0.6125, 1.4375)
    official = variant == "official"
    entries = formula(y, observed, *own[:2], mu, sigma, constraint, 0 if official else 0.01)
    expected = entries.mean() if official else entries.sum(dim=1).mean()
    value = loss(z, observed, **CALL)
    torch.testing.assert_close(value, expected)
    slopes = torch.autograd.grad(expected, [y, *own])
    actual = torch.autograd.grad(value, [z, *loss.parameters()])
    for slope, wanted in zip(actual, slopes, strict=True):
        torch.testing.assert_close(slope, wanted)
        assert (wanted != 0).any()


def descended(**options):
    """Mean v of the unknown entries of each class after descent on fixed logits; the method."""
    torch.manual_seed(0)
    logits = torch.randn(64, CLASSES) * 2 - 1
    observed = (torch.arange(64)[:, None] % CLASSES == torch.arange(CLASSES)).to(torch.int8)
    loss = method(own_lr=1.0, own_decay=0.0, reduction="sum_classes", **options)
    seen = []
    loss.weight.register_forward_hook(lambda _, __, value: seen.append(value.detach()))
    optimizer = loss.optimizer()
    for _ in range(400):
        optimizer.zero_grad()
        loss(logits, observed).backward()
        optimizer.step()
    v = torch.where(observed == 0, seen[-1], 0).sum(dim=0) / (observed == 0).sum(dim=0)
    return v, loss


def test_a_free_v_vanishes_and_a_constrained_one_does_not():
    free, _ = descended(constraint="none")
    assert (free < 0.05).all()
    per_class, tight = descended(constraint="class")
    torch.testing.assert_close(per_class, torch.ones(CLASSES))
    assert (tight.weight.sigma > 0.1).all() and tight.weight.mu.isfinite().all()
    assert (tight.weight.mu - 0.5).abs().min() > 1e-3  # it still learns
    batch, _ = descended(constraint="batch")
    assert batch.mean().item() == pytest.approx(1, abs=0.05) and batch.std() > per_class.std()


def test_v_is_one_on_average_whatever_its_parameters():
    logits, observed = random_batch()
    observed[:, 0] = 1  # a class without unknown entries
    loss = method()
    with torch.no_grad():
        loss.weight.mu.copy_(torch.linspace(-40, 40, CLASSES))
        # Every v underflows before it is divided by the mean.
        loss.weight.width.fill_(-90.0)
    seen = []
    loss.weight.register_forward_hook(lambda _, __, value: seen.append(value))
    loss(logits, observed, **CALL).backward()
    unknown = observed == 0
    means = torch.where(unknown, seen[0], 0).sum(dim=0)[1:] / unknown.sum(dim=0)[1:]
    torch.testing.assert_close(means, torch.ones_like(means))
    assert all(parameter.grad.isfinite().all() for parameter in loss.parameters())


def test_it_has_its_own_optimiser():
    loss = method(own_lr=0.3)
    optimizer = loss.optimizer()
    assert loss.parameter_groups(1.0) == []
    (group,) = optimizer.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.3, 0.9, 1e-3)
    assert {id(p) for p in group["params"]} == {id(p) for p in loss.parameters()}
    assert set(method(learn_alpha=False).state_dict()) == {"khat.w", "khat.b"}
    assert loss.khat.w.tolist() == [0.0] * CLASSES and loss.khat.b.tolist() == [-2.0] * CLASSES
    assert loss.weight.mu.tolist() == [0.5] * CLASSES
    torch.testing.assert_close(loss.weight.sigma, torch.full((CLASSES,), 2.0))
