"""GR Loss with learned parts: gradients by plain loops, and the effect on k_hat and v."""

import math

import pytest
import torch

from spml import losses
from spml.losses.components import Component
from spml.losses.terms import GCE, Absent
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
    return -math.log(p) if q == 0 else (1 - p**q) / q


def weights(p, s, mu, sigma, constraint):
    """v of each entry by plain loops."""
    items = range(len(p))
    v = [
        [math.exp(-((p[i][c] - mu[c]) ** 2) / (2 * sigma[c] ** 2)) for c in range(CLASSES)]
        for i in items
    ]
    for c in range(CLASSES):
        columns = {"class": [c], "batch": range(CLASSES), "none": []}[constraint]
        unknown = [(i, j) for i in items for j in columns if s[i][j] == 0]
        if unknown:
            raw = [math.exp(-((p[i][j] - mu[j]) ** 2) / (2 * sigma[j] ** 2)) for i, j in unknown]
            for i in items:
                v[i][c] /= sum(raw) / len(raw)
    return v


@pytest.mark.parametrize("constraint", ["class", "batch", "none"])
@pytest.mark.parametrize("variant", ["official", "paper"])
def test_value_and_gradients_of_w_and_b_are_the_formula(constraint, variant):
    logits, observed = random_batch()
    loss = moved(constraint=constraint, variant=variant, q2=0.3, q3=0.7)
    value = loss(logits, observed, **CALL)
    value.backward()

    p, s = logits.sigmoid().tolist(), observed.tolist()
    w, b = loss.khat.w.tolist(), loss.khat.b.tolist()
    v = weights(
        p,
        s,
        loss.weight.mu.tolist(),
        [0.1 + math.log1p(math.exp(x)) for x in loss.weight.width.tolist()],
        constraint,
    )
    q1, count = (0.0, logits.numel()) if variant == "official" else (0.01, len(logits))
    total, slope_w, slope_b = 0.0, [0.0] * CLASSES, [0.0] * CLASSES
    for i in range(len(p)):
        for c in range(CLASSES):
            present, absent = gce(p[i][c], 0.3), gce(1 - p[i][c], 0.7)
            k = 1 / (1 + math.exp(-(w[c] * p[i][c] + b[c])))
            if s[i][c] == 0:
                total += v[i][c] * (k * present + (1 - k) * absent)
                slope_b[c] += v[i][c] * (present - absent) * k * (1 - k) / count
                slope_w[c] += v[i][c] * (present - absent) * k * (1 - k) * p[i][c] / count
            else:
                total += gce(p[i][c], q1) if s[i][c] == 1 else absent
    assert value.item() == pytest.approx(total / count)
    assert loss.khat.w.grad.tolist() == pytest.approx(slope_w)
    assert loss.khat.b.grad.tolist() == pytest.approx(slope_b)


def test_the_gradients_of_mu_and_sigma_are_those_of_small_steps():
    logits, observed = random_batch()
    loss = moved()
    loss(logits, observed, **CALL).backward()
    for parameter in (loss.weight.mu, loss.weight.width):
        for c in range(CLASSES):
            values = []
            for step in (1e-6, -1e-6):
                with torch.no_grad():
                    parameter[c] += step
                    values.append(loss(logits, observed, **CALL).item())
                    parameter[c] -= step
            assert parameter.grad[c].item() == pytest.approx(
                (values[0] - values[1]) / 2e-6, abs=1e-8
            )
    assert (loss.weight.mu.grad != 0).any() and (loss.weight.width.grad != 0).any()


@pytest.mark.parametrize(("p", "slope"), [(0.05, 2.90), (0.5, 0.19), (0.8, -0.58)])
def test_k_hat_falls_at_small_p_and_rises_at_large_p(p, slope):
    """The slope in k_hat is L2 - L3; it changes sign near p = 0.566, where they are equal."""
    loss = method(learn_alpha=False, mu=p, sigma=1e6, reduction="sum")
    z = torch.full((1, CLASSES), p).logit()
    loss(z, torch.zeros_like(z)).backward()
    k = torch.sigmoid(torch.tensor(-2.0))
    assert (loss.khat.b.grad / (k * (1 - k)))[0].item() == pytest.approx(slope, abs=0.01)


class Held(Component):
    """Numbers computed elsewhere."""

    formula = "held"

    def __init__(self, values):
        super().__init__()
        self.values = values

    def forward(self, p, context):
        return self.values


@pytest.mark.parametrize("learn_alpha", [True, False])
def test_the_models_gradient_is_that_of_gr_with_k_hat_and_v_held(learn_alpha):
    logits, observed = random_batch()
    loss = moved(learn_alpha=learn_alpha)
    seen = {}
    for name in ("khat", "weight"):
        part = getattr(loss, name)
        part.register_forward_hook(
            lambda _, __, value, name=name: seen.update({name: value.detach()})
        )
    z = logits.clone().requires_grad_()
    loss(z, observed, **CALL).backward()
    y = logits.clone().requires_grad_()
    held = losses.UnifiedLoss(
        Held(seen["khat"]), Held(seen["weight"]), GCE(0), GCE(0.01), Absent(GCE(1.0))
    )
    held(y, observed, **CALL).backward()
    torch.testing.assert_close(z.grad, y.grad)


def test_before_learning_it_equals_gr_in_the_first_epoch():
    """With a scheduled alpha, and before w and b have moved."""
    logits, observed = random_batch()
    ours = method(learn_alpha=False)(logits, observed, epoch=1, epochs=8)
    assert ours.item() == pytest.approx(
        losses.create("gr")(logits, observed, epoch=1, epochs=8).item()
    )
    moved_mu = method(learn_alpha=False)(logits, observed, epoch=5, epochs=8)
    assert moved_mu.item() == pytest.approx(
        losses.create("gr", w=0)(logits, observed, epoch=5, epochs=8).item()
    )


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


def test_each_part_changes_the_value():
    logits, observed = random_batch()
    value = moved()(logits, observed, **CALL).item()
    for part, name in (("khat", "w"), ("khat", "b"), ("weight", "mu"), ("weight", "width")):
        other = moved()
        with torch.no_grad():
            getattr(getattr(other, part), name).zero_()
        assert abs(other(logits, observed, **CALL).item() - value) > 1e-4, name
    for options in ({"q1": 0.5}, {"q2": 0.5}, {"q3": 0.5}):
        assert abs(moved(**options)(logits, observed, **CALL).item() - value) > 1e-4, options


def test_it_has_its_own_optimiser():
    loss = method(own_lr=0.3)
    optimizer = loss.optimizer()
    assert loss.parameter_groups(1.0) == []
    (group,) = optimizer.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.3, 0.9, 1e-3)
    assert {id(p) for p in group["params"]} == {id(p) for p in loss.parameters()}
    assert set(loss.state_dict()) == {"khat.w", "khat.b", "weight.mu", "weight.width"}
    assert set(method(learn_alpha=False).state_dict()) == {"khat.w", "khat.b"}
    assert loss.khat.w.tolist() == [0.0] * CLASSES and loss.khat.b.tolist() == [-2.0] * CLASSES
    assert loss.weight.mu.tolist() == [0.5] * CLASSES
    torch.testing.assert_close(loss.weight.sigma, torch.full((CLASSES,), 2.0))
