"""The paper's Table 1: assembled methods equal the named ones, and equivalent losses coincide."""

import pytest
import torch

from spml import losses
from spml.losses import UnifiedLoss
from spml.losses.components import Constant, Gaussian, Logistic, OutsideGap, Step, TwoThresholds
from spml.losses.terms import GCE, Absent, Focal, Hill, Log, NegativeEntropy

from .common import random_batch, value_and_gradient

LOGITS, OBSERVED = random_batch(items=6, classes=9)
FOCAL_MARGIN = Focal(2, margin=1)


def same(first, second, tolerance=1e-12, **call):
    """Assert equal values and gradients, known negatives included."""
    for a, b in zip(
        value_and_gradient(first, LOGITS, OBSERVED, **call),
        value_and_gradient(second, LOGITS, OBSERVED, **call),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


COLUMNS = {
    "em": (
        UnifiedLoss(Constant(1), Constant(0.1), Log(), NegativeEntropy(), Absent(Log())),
        ("em", {"alpha": 0.1}),
    ),
    "hill": (
        UnifiedLoss(Constant(0), Constant(1), Log(), None, Hill(1.5)),
        ("hill", {"variant": "gr"}),
    ),
    "focal margin and splc": (
        UnifiedLoss(Step(0.6), Constant(1), FOCAL_MARGIN, FOCAL_MARGIN, Hill(1.5)),
        ("splc", {"variant": "gr", "from_epoch": 1}),
    ),
    "gr": (
        UnifiedLoss(
            Logistic(10, -8),
            Gaussian(0.8, 0.5),
            GCE(0.01),
            GCE(0.01),
            Absent(GCE(1)),
            reduction="sum_classes",
        ),
        ("gr", {"variant": "paper", "w": 10, "b": -8, "mu": 0.8, "sigma": 0.5}),
    ),
    "large loss, correction, is a threshold": (
        # the four largest of the unknown entries lie above the threshold
        UnifiedLoss(
            Step(float((LOGITS[OBSERVED == 0].sort(descending=True).values[3:5].mean()).sigmoid())),
            Constant(1),
            Log(),
            Log(),
            Absent(Log()),
        ),
        ("ll_ct", {"delta": 4 / 54}),
    ),
    "large loss, rejection, is a gap": (
        UnifiedLoss(
            Constant(0),
            OutsideGap(
                2, float((LOGITS[OBSERVED == 0].sort(descending=True).values[3:5].mean()).sigmoid())
            ),
            Log(),
            None,
            Absent(Log()),
        ),
        ("ll_r", {"delta": 4 / 54}),
    ),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_loss_assembled_from_components_equals_the_named_method(column):
    assembled, (name, options) = COLUMNS[column]
    same(assembled, losses.create(name, **options), epoch=2, epochs=8)


def constant_k(k, q=0):
    return UnifiedLoss(Constant(k), Constant(1), GCE(q), GCE(q), Absent(GCE(q)))


PAIRS = {
    "an is the framework with k 0": (losses.create("an"), constant_k(0)),
    "an is gr with k 0, v 1, q 0": (
        losses.create("an"),
        losses.create("gr", w=0, b=-1e9, mu=0, sigma=1e9, q1=0, q2=0, q3=0),
    ),
    "an is gce with q 0": (losses.create("an"), losses.create("gce", q=0)),
    "an is focal with gamma 0": (losses.create("an"), losses.create("focal", gamma=0)),
    "an is sce without its reverse": (losses.create("an"), losses.create("sce", alpha=1, beta=0)),
    "an is an_ls without smoothing": (losses.create("an"), losses.create("an_ls", smoothing=0)),
    "gce with q 1 is taylor of order 1": (
        losses.create("gce", q=1),
        losses.create("taylor_ce", order=1),
    ),
    "gce with q 1 is sce without its log": (
        losses.create("gce", q=1),
        losses.create("sce", alpha=0, A=-1),
    ),
    "focal is asl with equal gammas and no clip": (
        losses.create("focal"),
        losses.create("asl", gamma_neg=2, gamma_pos=2, clip=0, detach=False),
    ),
    "splc before it corrects is focal but for the margin": (
        losses.create("splc", margin=0, from_epoch=9),
        losses.create("focal"),
    ),
    "ll_r in the first epoch is an": (losses.create("ll_r", delta=0.5), losses.create("an")),
    "ll_ct in the first epoch is an": (losses.create("ll_ct", delta=0.5), losses.create("an")),
    "full is an without unknown entries": (
        losses.create("full"),
        UnifiedLoss(Constant(0), Constant(0), Log(), None, Absent(Log())),
    ),
    "a gap that is empty is a step": (
        UnifiedLoss(TwoThresholds(0.6, 0.6), OutsideGap(0.6, 0.6), Log(), Log(), Absent(Log())),
        UnifiedLoss(Step(0.6), Constant(1), Log(), Log(), Absent(Log())),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_losses_that_coincide(pair):
    same(*PAIRS[pair])


def test_taylor_of_high_order_is_cross_entropy():
    middle = LOGITS.clamp(-2, 2)
    taylor, an = losses.create("taylor_ce", order=400), losses.create("an")
    assert taylor(middle, OBSERVED).item() == pytest.approx(an(middle, OBSERVED).item(), abs=1e-9)


def test_en_is_a_negative_pseudo_label_below_its_threshold_and_nothing_above():
    en = UnifiedLoss(Constant(0), OutsideGap(2, 0.3), Log(), Log(), Absent(Log()), reduction="none")
    entries, p = en(LOGITS, OBSERVED), LOGITS.sigmoid()
    unknown = OBSERVED == 0
    assert (entries[unknown & (p > 0.3)] == 0).all()
    torch.testing.assert_close(
        entries[unknown & (p <= 0.3)], -torch.log(1 - p)[unknown & (p <= 0.3)]
    )
