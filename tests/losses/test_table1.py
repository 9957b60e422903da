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
LOG = (Log(), Log(), Absent(Log()))  # L1, L2 and L3 of cross-entropy
# The four largest of the unknown entries lie above the threshold.
LARGEST = float(LOGITS[OBSERVED == 0].sort(descending=True).values[3:5].mean().sigmoid())
FOUR = {"delta": 4 / 54}  # of the 54 entries
UNIFIED = {  # named methods as they are assembled from components
    "em": (
        [Constant(1), Constant(0.1), Log(), NegativeEntropy(), Absent(Log())],
        {"alpha": 0.1},
    ),
    "hill": ([Constant(0), Constant(1), Log(), None, Hill(1.5)], {"variant": "gr"}),
    "splc": (
        [Step(0.6), Constant(1), FOCAL_MARGIN, FOCAL_MARGIN, Hill(1.5)],
        {"variant": "gr", "from_epoch": 1},
    ),
    "gr": (
        [Logistic(10, -8), Gaussian(0.8, 0.5), GCE(0.01), GCE(0.01), Absent(GCE(1))],
        {"variant": "paper", "reduction": "mean", "w": 10, "b": -8, "mu": 0.8, "sigma": 0.5},
    ),
    "ll_ct": ([Step(LARGEST), Constant(1), *LOG], FOUR),
    "ll_r": ([Constant(0), OutsideGap(2, LARGEST), *LOG], FOUR),
    "an": ([Constant(0), Constant(1), *LOG], {}),
    "full": ([Constant(0), Constant(0), *LOG], {}),
}


def same(first, second, **call):
    """Assert equal values and gradients, known negatives included."""
    ours = value_and_gradient(first, LOGITS, OBSERVED, **call)
    theirs = value_and_gradient(second, LOGITS, OBSERVED, **call)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", UNIFIED)
def test_a_loss_assembled_from_components_equals_the_named_method(name):
    parts, options = UNIFIED[name]
    same(UnifiedLoss(*parts), losses.create(name, **options), epoch=2, epochs=8)


def test_a_gap_that_is_empty_is_a_step():
    gap = UnifiedLoss(TwoThresholds(0.6, 0.6), OutsideGap(0.6, 0.6), *LOG)
    same(gap, UnifiedLoss(Step(0.6), Constant(1), *LOG))


def test_taylor_of_high_order_is_cross_entropy():
    middle = LOGITS.clamp(-2, 2)
    taylor, an = losses.create("taylor_ce", order=400), losses.create("an")
    assert taylor(middle, OBSERVED).item() == pytest.approx(an(middle, OBSERVED).item(), abs=1e-9)
