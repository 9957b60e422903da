"""A state saved in the middle of an epoch restores the epoch's random numbers."""

import pytest
import torch

from spml import losses

ITEMS, CLASSES = 6, 3
OBSERVED = torch.eye(ITEMS, CLASSES, dtype=torch.int8)
CASES = [("mime", {}), ("smile", {}), ("smile", {"x": torch.arange(12.0).view(ITEMS, 2)})]


def create(name, options):
    torch.manual_seed(0)
    method = losses.create(name, items=ITEMS, classes=CLASSES, observed=OBSERVED, **options)
    if "features" in method.needs:
        method.prepare(torch.ones(1, CLASSES, 5))
    return method


def value(method):
    features = {"features": torch.ones(ITEMS, CLASSES, 5)} if "features" in method.needs else {}
    call = {"epoch": 1, "epochs": 4, "index": torch.arange(ITEMS), **features}
    return method(torch.zeros(ITEMS, CLASSES), OBSERVED, **call).item()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_state_saved_in_an_epoch_restores_its_draws(name, options):
    method, other = create(name, options), create(name, options)
    method.begin_epoch(2, 4)
    assert value(method) != value(other)
    other.load_state_dict(method.state_dict())
    assert value(method) == value(other)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_an_older_state_without_draws_is_accepted(name, options):
    method, other = create(name, options), create(name, options)
    state = method.state_dict()
    del state["_extra_state"]
    other.begin_epoch(2, 4)
    before = value(other)
    other.load_state_dict(state)
    assert "_extra_state" not in state and value(other) == before
