"""Results of the paper: unbiased risk (App. A), gradients (App. C), limits of q (App. D)."""

from itertools import pairwise
from typing import cast

import pytest
import torch
import torch.nn.functional as F

from spml import losses
from spml.losses import UnifiedLoss
from spml.losses.components import Constant, Context, Posterior
from spml.losses.terms import GCE, Absent, Log

from .common import value_and_gradient

Z = torch.linspace(-6, 6, 49, dtype=torch.float64).view(1, -1)
P = Z.sigmoid()
UNKNOWN = torch.zeros(Z.shape, dtype=torch.int8)


class KnownK(Constant):
    """A k_hat known entry by entry."""

    def __init__(self, k):
        super().__init__(0)
        self.k = k

    def forward(self, p, context):
        return self.k


def gradient(loss, observed=UNKNOWN, **call):
    return value_and_gradient(loss, Z, observed, **call)[1]


def gr(**options):
    """GR with its entries summed, and v = 1 unless options change it."""
    values = {"mu": 0, "sigma": 1e9, "reduction": "sum"}
    return cast(UnifiedLoss, losses.create("gr", **values | options))


@pytest.mark.parametrize("q", [0, 0.3, 1])
def test_with_the_true_k_the_expected_risk_is_that_of_complete_labels(q):
    """Appendix A, summed over inputs x, labels y and observations s, which depend on x and y."""
    prob_x = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    # P(y = 1 | x) by class, and P(s = 1 | y = 1, x).
    prob_y = torch.tensor([[0.9, 0.2], [0.5, 0.6], [0.05, 0.7]], dtype=torch.float64)
    prob_s = torch.tensor([[0.4, 0.9], [0.1, 0.5], [0.8, 0.3]], dtype=torch.float64)
    k = prob_y * (1 - prob_s) / (1 - prob_y * prob_s)
    logits = torch.tensor([[1.0, -2.0], [0.3, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    loss = UnifiedLoss(KnownK(k), Constant(1), GCE(q), GCE(q), Absent(GCE(q)), reduction="none")
    complete = losses.create("gce", q=q, reduction="none")

    risk, complete_risk = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for y, s, probability in [
        (1, 1, prob_y * prob_s),
        (1, 0, prob_y * (1 - prob_s)),
        (0, 0, 1 - prob_y),
    ]:
        joint = prob_x[:, None] * probability
        risk += (joint * loss(logits, torch.full((3, 2), s))).sum(0)
        complete_risk += (joint * complete(logits, torch.full((3, 2), 2 * y - 1))).sum(0)
    torch.testing.assert_close(risk, complete_risk, rtol=0, atol=1e-14)


def test_posterior_is_k_when_positives_are_observed_with_probability_a():
    a = 1 / 2.94
    expected = P * (1 - a) / (1 - P * a)
    torch.testing.assert_close(Posterior(a)(P, Context(Z, UNKNOWN)), expected)
    assert (expected.diff() > 0).all()


def equation_18(q2, q3, v=1.0):
    """Gradient on an unknown label; k_hat and v scale it and carry none."""
    k = torch.sigmoid(10 * P - 8)
    return v * ((1 - k) * (1 - P) ** q3 * P - k * P**q2 * (1 - P))


LATE = {"w": 10, "b": -8}
V = torch.exp(-((P - 0.8) ** 2) / (2 * 0.5**2))
EM = 0.3 * torch.log(P / (1 - P)) * P * (1 - P)
GRADIENTS = {
    "gr": (gr(q2=0.01, q3=1, **LATE), equation_18(0.01, 1)),
    "gr with q below 1": (gr(q2=0.3, q3=0.7, **LATE), equation_18(0.3, 0.7)),
    "gr with q above 1": (gr(q2=1, q3=1.5, **LATE), equation_18(1, 1.5)),
    "gr with v": (gr(q3=1.5, mu=0.8, sigma=0.5, **LATE), equation_18(0.01, 1.5, V)),
    "em": (losses.create("em", alpha=0.3, reduction="sum"), EM),
    "em with eps": (losses.create("em", alpha=0.3, eps=1e-12, reduction="sum"), EM),
    "hill": (losses.create("hill", reduction="sum"), 3 * P**2 * (1 - P) ** 2),
    "hill 1.2": (losses.create("hill", lam=1.2, reduction="sum"), P**2 * (2.4 - 3 * P) * (1 - P)),
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_on_unknown_labels_are_those_of_appendix_c(case):
    loss, expected = GRADIENTS[case]
    torch.testing.assert_close(gradient(loss), expected, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(("w", "b"), [(0, -1e9), (10, -8)])  # the negative part, and all
def test_conclusion_1_a_larger_q3_shrinks_the_pull_towards_absent_at_every_p(w, b):
    gradients = [gradient(gr(q3=q3, w=w, b=b)) for q3 in (0, 0.3, 0.7, 1, 1.5, 3)]
    for larger, smaller in pairwise(gradients):
        assert (smaller < larger).all()


def test_conclusion_2_early_training_raises_small_p_late_training_raises_p_near_1():
    early = gradient(gr(w=0, b=-2))
    assert (early[P < 0.1] < 0).all()
    assert (early[P > 0.3] > 0).any()
    late = gradient(gr(w=10, b=-8))
    assert (late[P > 0.9] < 0).all()
    assert (late[(P > 0.1) & (P < 0.6)] > 0).all()


@pytest.mark.parametrize("label", [1, 0])
@pytest.mark.parametrize("q", [0, 1e-9, 1 - 1e-9, 1])
def test_q_0_is_cross_entropy_and_q_1_mean_absolute_error(label, q):
    observed = torch.full(Z.shape, label)
    expected, derivative = (P - label).abs().mean(), (1 - 2 * label) * P * (1 - P)
    if q < 0.5:
        expected, derivative = F.binary_cross_entropy_with_logits(Z, observed.double()), P - label
    value, slope = value_and_gradient(losses.create("gce", q=q), Z, observed)
    assert value.item() == pytest.approx(expected.item(), rel=1e-8)
    torch.testing.assert_close(slope, derivative / Z.numel(), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("q", [0.2, 0.7, 1, 1.5])
def test_gradient_of_gce_is_that_of_cross_entropy_times_p_to_the_q(q):
    observed = torch.ones(Z.shape)
    robust = gradient(UnifiedLoss(Constant(0), Constant(1), GCE(q), None, Absent(GCE(q))), observed)
    plain = gradient(UnifiedLoss(Constant(0), Constant(1), Log(), None, Absent(Log())), observed)
    torch.testing.assert_close(robust, plain * P**q)
