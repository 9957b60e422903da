"""Which entries the large-loss methods pick, and which they never may."""

from math import ceil

import pytest
import torch

from spml import losses
from spml.losses.components import Context, Largest


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
