"""Single components: boundaries, precision, and the terms that an option changes."""

import pytest
import torch

from spml import losses
from spml.losses.components import (
    Constant,
    Context,
    Gaussian,
    Logistic,
    OutsideGap,
    OverOthers,
    Step,
    TwoThresholds,
)
from spml.losses.terms import Absent, Log

from .common import random_batch, value_and_gradient

P = torch.tensor([[0.1, 0.25, 0.5, 0.75, 0.9]], dtype=torch.float64)
CONTEXT = Context(P.logit(), torch.zeros(1, 5), epoch=3, epochs=8)


def test_a_step_is_above_its_threshold_not_at_it():
    assert Step(0.5)(P, CONTEXT).tolist() == [[0, 0, 0, 1, 1]]
    assert Step(0.5, from_epoch=4)(P, CONTEXT) == 0


def test_two_thresholds_include_both_ends_and_leave_out_what_lies_between():
    assert TwoThresholds(0.75, 0.25)(P, CONTEXT).tolist() == [[0, 0, 0, 1, 1]]
    assert OutsideGap(0.75, 0.25)(P, CONTEXT).tolist() == [[1, 1, 0, 1, 1]]


def test_thresholds_may_move():
    # The threshold is 0.35 after three of eight epochs.
    assert Step((0.05, 0.85))(P, CONTEXT).tolist() == [[0, 0, 1, 1, 1]]


def test_constants_and_weights():
    assert Constant(0.3)(P, CONTEXT) == 0.3
    assert OverOthers()(P, CONTEXT) == 1 / 4
    assert Gaussian(0.5, 2)(P, CONTEXT)[0, 2] == 1
    assert Logistic(0, 0)(P, CONTEXT).tolist() == [[0.5] * 5]


@pytest.mark.parametrize("logit", [-30.0, -20.0, -8.0, 8.0, 20.0, 30.0])
def test_entropy_keeps_its_digits_on_both_sides(logit):
    loss = losses.create("em", alpha=1)
    observed = torch.zeros(1, 1)
    single = value_and_gradient(loss, torch.tensor([[logit]]), observed)
    double = value_and_gradient(loss, torch.tensor([[-abs(logit)]], dtype=torch.float64), observed)
    assert single[0].item() == pytest.approx(double[0].item(), rel=1e-5)
    assert abs(single[1].item()) == pytest.approx(abs(double[1].item()), rel=1e-5)


def test_eps_of_gr_is_for_observed_positives_alone():
    logits, observed = random_batch()
    options = {"q2": 0, "q3": 0, "reduction": "none"}
    plain = losses.create("gr", **options)(logits, observed, epoch=3, epochs=8)
    raised = losses.create("gr", eps=0.1, **options)(logits, observed, epoch=3, epochs=8)
    assert torch.equal(plain[observed != 1], raised[observed != 1])
    assert (plain[observed == 1] > raised[observed == 1]).all()


def test_focusing_of_absent_labels_carries_gradient_unless_detached():
    logits = torch.linspace(-2, 4, 9, dtype=torch.float64).view(1, -1)
    m = logits.sigmoid() - 0.05
    slope = logits.sigmoid() * (1 - logits.sigmoid())
    through_log = m**4 / (1 - m) * slope
    through_weight = -4 * m**3 * torch.log(1 - m) * slope
    positive = -((1 - logits.sigmoid()) ** 2)
    for detach, expected in ((True, through_log), (False, through_log + through_weight)):
        loss = losses.create("asl", detach=detach, reduction="sum")
        torch.testing.assert_close(value_and_gradient(loss, logits, torch.zeros(1, 9))[1], expected)
        present = value_and_gradient(loss, logits, torch.ones(1, 9))[1]
        assert torch.allclose(present, positive) == detach


def test_a_loss_assembled_by_hand_is_checked():
    parts = (Log(), None, Absent(Log()))
    with pytest.raises(ValueError, match="needs an l2"):
        losses.UnifiedLoss(Constant(0.5), Constant(1), *parts)(*random_batch())
