"""The memory that a method reports is the memory that it uses."""

import pytest
import torch

from spml import losses

ITEMS, CLASSES = 37, 5
ESTIMATED = torch.full((ITEMS, CLASSES), 0.5)
OWN = [  # method and options
    ("role", {}),
    ("role", {"estimated": ESTIMATED}),
    ("ll_cp", {}),
    ("ll_cp", {"variant": "released"}),
    ("em_apl", {"warmup": 1}),
    ("em_apl", {"warmup": 1, "table": torch.zeros(ITEMS, CLASSES)}),
    ("crisp", {"warmup": 1}),
    ("crisp", {"warmup": 0, "priors": [0.5] * CLASSES}),
    ("gr_learnable", {}),
    ("gr_learnable", {"learn_alpha": False}),
    ("gr_learnable", {"own_momentum": 0.0}),
    ("an", {}),
    ("gr", {}),
]


def size(tensors) -> int:
    return sum(
        tensor.numel() * tensor.element_size()
        for tensor in tensors
        if isinstance(tensor, torch.Tensor)
    )


def stored_bytes(method: losses.Method) -> int:
    """Bytes held by a trained method, in the middle of its pass if it makes one."""
    groups = method.parameter_groups(0.1)
    optimizers = [torch.optim.Adam(groups)] if groups else []
    optimizers += [own] if (own := method.optimizer()) else []
    index = torch.arange(8)
    logits = torch.randn(8, CLASSES, requires_grad=True)
    method(logits, torch.eye(8, CLASSES), epoch=1, epochs=4, index=index).backward()
    for optimizer in optimizers:
        optimizer.step()
    if method.wants_pass(1, 4):
        method.take_scores(torch.randn(ITEMS, CLASSES), torch.arange(ITEMS))
    moments = [
        value
        for optimizer in optimizers
        for state in optimizer.state.values()
        for name, value in state.items()
        if name != "step"  # a single number
    ]
    return size([*method.parameters(), *method.buffers(), *moments, *vars(method).values()])


@pytest.mark.parametrize(
    ("name", "options"), OWN, ids=lambda part: part if isinstance(part, str) else "-".join(part)
)
def test_memory_is_what_a_method_keeps(name, options):
    observed = torch.zeros(ITEMS, CLASSES, dtype=torch.int8)
    observed[torch.arange(ITEMS), torch.arange(ITEMS) % CLASSES] = 1
    data = (
        {"items": ITEMS, "classes": CLASSES, "observed": observed}
        if "items" in losses.needs(name)
        else {}
    )
    method = losses.create(name, **options, **data)
    method.observed = None  # belongs to the training split
    assert losses.memory(name, ITEMS, CLASSES, **options) == stored_bytes(method)
    stored = size(method.state_dict().values())
    assert stored <= losses.memory(name, ITEMS, CLASSES, **options)
    assert bool(stored) == bool(data)


@pytest.mark.parametrize(
    ("name", "learned"),
    [
        ("em_apl", {"targets"}),
        ("crisp", {"priors", "running"}),
        ("mime", {"marked", "_extra_state"}),
    ],
)
def test_a_checkpoint_has_nothing_that_follows_from_the_labels(name, learned):
    data = {
        "items": ITEMS,
        "classes": CLASSES,
        "observed": torch.zeros(ITEMS, CLASSES, dtype=torch.int8),
    }
    assert set(losses.create(name, **data).state_dict()) == learned
