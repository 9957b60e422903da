"""Losses and methods by name, for any training loop.

loss = losses.create("gr", q3=1.5)
loss(logits, observed, epoch=3, epochs=8).backward()
"""

from spml.losses.framework import Method, UnifiedLoss, value_and_gradient
from spml.losses.metadata import About, Citation, Preset, Space, method, published, searched
from spml.losses.registry import (
    Option,
    about,
    check_options,
    code,
    create,
    datasets,
    head,
    memory,
    names,
    needs,
    options,
    preset,
    published_training,
    space,
    summary,
)

__all__ = [
    "About",
    "Citation",
    "Method",
    "Option",
    "Preset",
    "Space",
    "UnifiedLoss",
    "about",
    "check_options",
    "code",
    "create",
    "datasets",
    "head",
    "memory",
    "method",
    "names",
    "needs",
    "options",
    "preset",
    "published",
    "published_training",
    "searched",
    "space",
    "summary",
    "value_and_gradient",
]
