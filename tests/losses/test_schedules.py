"""Hyper-parameters that move over training, differ between classes, or both."""

import numpy as np
import pytest
import torch

from spml import losses
from spml.losses.components import Context, Gaussian, Logistic, Ramp

from .common import random_batch, value_and_gradient

ENDS = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
COCO = {"w": (0, 10), "b": (-2, -8), "mu": (0.5, 0.8), "sigma": (2, 0.5)}


def at(epoch, epochs):
    return Context(ENDS, torch.zeros(1, 2), epoch, epochs)


def parameters(loss, epoch, epochs):
    assert isinstance(loss.khat, Logistic) and isinstance(loss.weight, Gaussian)
    ramps = (loss.khat.w, loss.khat.b, loss.weight.mu, loss.weight.sigma)
    return tuple(float(ramp.at(at(epoch, epochs))) for ramp in ramps)


@pytest.mark.parametrize(
    ("epoch", "epochs", "expected", "khat", "v"),
    [
        (1, 8, (0, -2, 0.5375, 1.8125), (0.119, 0.119), (0.957, 0.968)),
        (5, 8, (5, -5, 0.6875, 1.0625), (0.007, 0.500), (0.811, 0.958)),
        (8, 8, (8.75, -7.25, 0.8, 0.5), (0.001, 0.818), (0.278, 0.923)),
        (10, 10, (9, -7.4, 0.8, 0.5), (0.001, 0.832), (0.278, 0.923)),
    ],
)
def test_official_schedule(epoch, epochs, expected, khat, v):
    loss = losses.create("gr", **COCO)
    assert parameters(loss, epoch, epochs) == pytest.approx(expected)
    assert loss.khat(ENDS, at(epoch, epochs)).tolist()[0] == pytest.approx(khat, abs=5e-4)
    assert loss.weight(ENDS, at(epoch, epochs)).tolist()[0] == pytest.approx(v, abs=5e-4)


def test_official_schedule_on_voc_never_reaches_its_end():
    loss = losses.create("gr", **losses.preset("gr", "voc").options)
    assert parameters(loss, 8, 8)[0] == 1.75
    assert loss.khat(ENDS, at(8, 8))[0, 1].item() == pytest.approx(0.438, abs=5e-4)


@pytest.mark.parametrize(("epoch", "fraction"), [(1, 0.125), (4, 0.5), (8, 1)])
def test_paper_schedule_is_one_fraction_for_all(epoch, fraction):
    expected = (10 * fraction, -2 - 6 * fraction, 0.5 + 0.3 * fraction, 2 - 1.5 * fraction)
    for options in ({"variant": "paper"}, {"schedule": "paper"}):
        loss = losses.create("gr", **options, **COCO)
        assert parameters(loss, epoch, 8) == pytest.approx(expected)


@pytest.mark.parametrize("w", [(0, 10), (3, 10), 10, [10.0, 10.0]])
def test_k_hat_starts_at_the_rate_of_missed_positives(w):
    loss = losses.create("gr", missed_rate=0.0241, w=w, b=(-2, -8))
    torch.testing.assert_close(loss.khat(ENDS, at(1, 8)), torch.full_like(ENDS, 0.0241))
    last = torch.tensor([[0.0, 1.0]], dtype=torch.float64) * 10 - 8
    torch.testing.assert_close(loss.khat(ENDS, at(9, 8)), last.sigmoid())


def test_variant_only_sets_defaults():
    def value(**options):
        return losses.create("gr", **COCO, **options)(*random_batch(), epoch=3, epochs=8)

    paper, official = value(variant="paper"), value()
    assert paper == value(q1=0.01, schedule="paper", reduction="sum_classes")
    assert official == value(variant="paper", q1=0, schedule="official", reduction="mean")
    assert paper != official


def test_a_ramp_stays_within_its_ends():
    assert Ramp((1, 3)).at(at(9, 8)) == 3
    assert Ramp((1, 3), lag=1).at(at(1, 8)) == 1
    assert Ramp((1, 3), lag=2).at(at(1, 8)) == 1
    assert Ramp(2).at(at(1, 8)) == 2


def test_q_moves_like_the_other_parameters():
    for name, option in (("gr", "q1"), ("gr", "q2"), ("gr", "q3"), ("gce", "q")):
        moving, still = (losses.create(name, **{option: q}) for q in ((0.2, 1.0), 0.5))
        values = [loss(*random_batch(), epoch=3, epochs=8).item() for loss in (moving, still)]
        assert values[0] == pytest.approx(values[1])


PER_CLASS = [
    ("gr", "w", np.array([0.0, 5.0, 10.0])),
    ("gr", "b", (np.array([-2.0, -2.0, -4.0]), np.array([-2.0, -8.0, -6.0]))),
    ("gr", "mu", torch.tensor([0.5, 0.6, 0.9])),
    ("gr", "sigma", (2.0, [0.5, 0.4, 0.3])),
    ("gr", "q1", [0.0, 0.3, 1.0]),
    ("gr", "q2", np.array([[0.01, 0.0, 1.0], [0.3, 0.5, 0.0]])),
    ("gr", "q3", ([1.0, 0.7, 0.0], 1.5)),
    ("gr", "a", np.array([0.0, 0.3, 0.9])),
    ("gce", "q", [0.0, 0.7, 1.0]),
]


@pytest.mark.parametrize(
    ("name", "option", "value"), PER_CLASS, ids=[f"{n}-{o}" for n, o, _ in PER_CLASS]
)
def test_per_class_parameters_equal_separate_losses(name, option, value):
    logits, observed = random_batch(items=6, classes=3)
    call = {"epoch": 3, "epochs": 8}
    joint = losses.create(name, reduction="sum", **{option: value})
    whole, slopes = value_and_gradient(joint, logits, observed, **call)

    pair = value if len(value) == 2 else (value, value)
    total = 0.0
    for c in range(3):
        ends = tuple(float(np.broadcast_to(end, 3)[c]) for end in pair)
        alone = losses.create(name, reduction="sum", **{option: ends})
        batch = logits[:, c : c + 1], observed[:, c : c + 1]
        loss, gradient = value_and_gradient(alone, *batch, **call)
        torch.testing.assert_close(slopes[:, c : c + 1], gradient)
        total += loss.item()
    assert whole.item() == pytest.approx(total)
