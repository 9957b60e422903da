"""Losses and methods by name, for anyone's own training loop.

loss = losses.create("gr", q3=1.5)
loss(logits, observed, epoch=3, epochs=8).backward()
"""

from spml.losses.method import Method
from spml.losses.presets import Preset, preset
from spml.losses.registry import (
    Option,
    check_options,
    code,
    create,
    head,
    memory,
    names,
    needs,
    options,
    space,
)
from spml.losses.search import Space, searched
from spml.losses.unified import UnifiedLoss, value_and_gradient

__all__ = [
    "Method",
    "Option",
    "Preset",
    "Space",
    "UnifiedLoss",
    "check_options",
    "code",
    "create",
    "head",
    "memory",
    "names",
    "needs",
    "options",
    "preset",
    "searched",
    "space",
    "value_and_gradient",
]
