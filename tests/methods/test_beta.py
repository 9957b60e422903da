"""Beta draws against scipy's distributions, their gradients and the divergence."""

import math

import pytest
import torch
from scipy import stats

from spml.methods.parts import beta
from spml.methods.parts.beta import LIMIT, divergence, draw, released_divergence
from tests.methods.smile import kl

SHAPES = [
    (1e-5, 1e-5),
    (1e-3, 2e-3),
    (1e-5, 1.0),
    (0.05, 0.2),
    (0.5, 0.5),
    (0.3, 0.7),
    (1.0, 1.0),
    (2.0, 5.0),
    (400.0, 90.0),
]
DRAWS = 100_000


def drawn(a, b, salt=7, items=DRAWS):
    """Numbers drawn from Beta(a, b), and the tensors of a and b."""
    shapes = [torch.full((items, 1), value, requires_grad=True) for value in (a, b)]
    return draw(*shapes, torch.arange(items), salt).sigmoid(), shapes


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("level", [0.001, 0.03, 0.3, 0.5, 0.8, 0.99])
def test_quantiles_are_those_of_the_distribution(a, b, level):
    """Draws are clipped at 1e-5 from both ends, so levels beyond that are not compared."""
    y, place = drawn(a, b, salt=11)[0].detach().double(), stats.beta(a, b).ppf(level)
    place = min(max(place, 2e-5), 1 - 2e-5)
    share = stats.beta(a, b).cdf(place)
    error = 5 * math.sqrt(0.25 / DRAWS)
    assert (y <= place).double().mean().item() == pytest.approx(share, abs=error)


@pytest.mark.parametrize(("a", "b"), [shape for shape in SHAPES if min(shape) > 1e-4])
def test_the_slope_of_the_draws_is_that_of_the_mean(a, b):
    y, shapes = drawn(a, b, salt=5)
    gradients = torch.autograd.grad(y.sum(), shapes)
    for slope, exact in zip(gradients, (b / (a + b) ** 2, -a / (a + b) ** 2), strict=True):
        error = slope.double().std().item() / math.sqrt(DRAWS)
        assert slope.double().mean().item() == pytest.approx(exact, abs=5 * error)
        assert error < 0.2 * abs(exact)


def test_the_slope_is_that_of_the_drawn_number():
    torch.manual_seed(0)
    shapes = [(torch.rand(6, 3, dtype=torch.float64) + 0.3).requires_grad_() for _ in range(2)]
    assert torch.autograd.gradcheck(lambda a, b: draw(a, b, torch.arange(6), 3), shapes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_are_finite_and_within_the_limit_at_any_concentration(dtype):
    values = [1e-6, 1e-5, 1e-3, 0.5, 1.0, 30.0, 1e4, 1e8]
    shapes = torch.tensor(values)
    a, b = (each.repeat(500, 1) for each in torch.cartesian_prod(shapes, shapes).unbind(dim=1))
    a, b = a.to(dtype).requires_grad_(), b.to(dtype).requires_grad_()
    logits = draw(a, b, torch.arange(500), 1)
    assert logits.dtype == dtype and logits.isfinite().all()
    assert logits.abs().max().item() <= LIMIT + 1e-5
    for of in (logits, logits.sigmoid(), torch.nn.functional.softplus(logits)):
        for slope in torch.autograd.grad(of.sum(), (a, b), retain_graph=True):
            assert slope.isfinite().all()
            assert (slope[logits.abs() >= LIMIT] == 0).all()


def test_an_item_has_its_draws_in_any_batch_and_others_with_another_salt():
    torch.manual_seed(0)
    a, b, index = torch.rand(9, 4), torch.rand(9, 4), torch.randperm(100)[:9]
    whole, part = draw(a, b, index, 3), torch.tensor([7, 2, 4])
    assert torch.equal(draw(a[part], b[part], index[part], 3), whole[part])
    assert (draw(a, b, index, 4) != whole).any() and (draw(a, b, index + 1, 3) != whole).any()


def test_proposals_are_seldom_rejected():
    torch.manual_seed(0)
    x, u = torch.randn(1_000_000, dtype=torch.float64), torch.rand(1_000_000, dtype=torch.float64)
    d = beta.LIFT - 1 / 3  # of the smallest shape, which rejects most
    v = (1 + x / math.sqrt(9 * d)) ** 3
    share = (u.log() >= x**2 / 2 + d - d * v + d * v.log()).double().mean().item()
    assert 0 < share**beta.PROPOSALS < 1e-8


def test_divergence_equals_torchs():
    shapes = torch.logspace(-4, 2, 13, dtype=torch.float64)
    a, b = torch.cartesian_prod(shapes, shapes).unbind(dim=1)
    torch.testing.assert_close(divergence(a, b), kl(a, b))


def test_divergence_and_the_released_expression_have_known_values():
    a = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    assert divergence(a, 1 - a).tolist() == pytest.approx([2.171, 0.242, 6.561], abs=5e-4)
    assert released_divergence(a, 1 - a).tolist() == pytest.approx([6.100, 3.108, 11.776], abs=5e-4)


@pytest.mark.parametrize("function", [divergence, released_divergence])
def test_divergences_are_finite_at_vanishing_concentrations(function):
    a = torch.tensor([0.0, 1e-12, 1e-6, 1.0, 50.0], requires_grad=True)
    value = function(a, torch.tensor([1.0, 1.0, 0.0, 1e-30, 0.0]))
    (slope,) = torch.autograd.grad(value.sum(), a)
    assert value.isfinite().all() and slope.isfinite().all()
