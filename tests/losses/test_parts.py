"""Single components: boundaries, precision, and the entries that large-loss methods pick."""

from math import ceil

import pytest
import torch

from spml import losses
from spml.losses.components import (
    Constant,
    Context,
    Gaussian,
    Largest,
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


def picked(logits, observed, delta, epoch):
    """Entries that the method treats differently from assume-negative."""
    plain = losses.create("an", reduction="none")(logits, observed)
    call = {"epoch": epoch, "epochs": 10}
    rejected, corrected = (
        losses.create(name, delta=delta, reduction="none")(logits, observed, **call) != plain
        for name in ("ll_r", "ll_ct")
    )
    assert torch.equal(rejected, corrected)
    return rejected


def batch(items, classes):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(items, classes, generator=generator, dtype=torch.float64) + 0.1
    observed = torch.zeros(items, classes, dtype=torch.int8)
    observed[:, 0] = 1
    return logits, observed


@pytest.mark.parametrize("epoch", [1, 2, 3, 4, 10])
def test_the_pick_is_rounded_up_and_counts_all_entries(epoch):
    logits, observed = batch(16, 20)
    count = ceil(round(320 * 0.002 * (epoch - 1), 9))
    assert count == {1: 0, 2: 1, 3: 2, 4: 2, 10: 6}[epoch]
    chosen = picked(logits, observed, 0.002, epoch)
    assert chosen.sum() == count
    if count:
        assert logits[chosen].min() > logits[(observed == 0) & ~chosen].max()


def test_nothing_is_picked_in_an_epoch_0():
    assert not picked(*batch(16, 20), 0.3, 0).any()


def test_a_share_that_is_a_whole_number_of_entries_is_not_rounded_up():
    logits, observed = batch(10, 10)
    assert picked(logits, observed, 0.07, 2).sum() == 7  # 100 * 0.07 is above 7 in floating point


@pytest.mark.parametrize("delta", [0.6, 0.9, 1.0])
@pytest.mark.parametrize("epoch", [2, 3, 10])
def test_known_labels_are_never_picked_even_when_all_unknown_ones_are(delta, epoch):
    logits, observed = batch(4, 6)
    observed[:, 1:3] = -1
    logits[:, :3] += 10
    chosen = picked(logits, observed, delta, epoch)
    assert torch.equal(chosen, observed == 0)


def test_without_unknown_labels_nothing_is_picked():
    logits, observed = batch(4, 6)
    assert not picked(logits, torch.ones_like(observed), 0.5, 3).any()


def test_ties_with_the_last_one_picked_are_picked_too():
    logits = torch.tensor([[0.5, 2.0, 1.0, 1.0, 1.0, -1.0]])
    observed = torch.tensor([[1, 0, 0, 0, 0, 0]])
    assert picked(logits, observed, 2 / 6, 2).tolist() == [[False, True, True, True, True, False]]


def test_ranking_sees_differences_that_the_loss_in_float32_does_not():
    logits = torch.tensor([[-104.0, -105.0, -106.0, 3.0]])
    observed = torch.tensor([[0, 0, 0, 1]])
    chosen = Largest(0.25, 1)(logits.sigmoid(), Context(logits, observed, 2, 10))
    assert chosen.tolist() == [[1, 0, 0, 0]]
