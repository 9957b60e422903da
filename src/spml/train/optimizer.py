"""The optimiser that the settings name."""

from __future__ import annotations

from typing import Any

import torch

from spml.train.settings import Settings


def make_optimizer(groups: list[dict[str, Any]], lr: float, settings: Settings) -> torch.optim.Optimizer:
    """Over the groups that have parameters; `lr` is that of groups without one of their own."""
    groups = [group for group in groups if group["params"]]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=0.9, weight_decay=settings.weight_decay)
    return torch.optim.Adam(groups, lr=lr, weight_decay=settings.weight_decay)
