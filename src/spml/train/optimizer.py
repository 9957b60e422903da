"""The optimiser that the settings name."""

from __future__ import annotations

import math
from typing import Any

import torch

from spml.runs.settings import Settings
from spml.train.device import uses_cuda

RISING = 0.2  # share of training over which a one-cycle rate rises
LOWEST = 1 / 25  # that it rises from


def make_optimizer(
    groups: list[dict[str, Any]], lr: float, settings: Settings
) -> torch.optim.Optimizer:
    """Over the groups that have parameters; `lr` is that of groups without one of their own."""
    groups = [group for group in groups if group["params"]]
    common: dict[str, Any] = {"lr": lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "adamax":
        return torch.optim.Adamax(groups, **common)
    fused = uses_cuda(settings) or None  # one kernel for all parameters
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, fused=fused, **common)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, fused=fused, **common)


def rate(settings: Settings, done: float) -> float:
    """What learning rates are multiplied with when this share of training is done."""
    if settings.schedule == "constant":
        return 1.0
    if done < RISING:
        return LOWEST + (1 - LOWEST) * (1 - math.cos(math.pi * done / RISING)) / 2
    return (1 + math.cos(math.pi * (done - RISING) / (1 - RISING))) / 2


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Multiply the learning rates that the optimiser was made with."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("full_lr", group["lr"]) * factor


def set_rates(optimizers: list[Any], settings: Settings, done: float) -> None:
    """Of all optimisers, when this share of training is done; where they stay as they are, nothing is touched."""
    if settings.schedule != "constant":
        factor = rate(settings, done)
        for optimizer in optimizers:
            set_rate(optimizer, factor)


def take_step(optimizers: list[Any], fabric: Any) -> None:
    """One step of Fabric's optimiser, the first, and of a method's own, whose gradients float16 scales as well."""
    common, *own = optimizers
    scaler = getattr(fabric._precision, "scaler", None)
    for optimizer in own:
        moved = any(
            parameter.grad is not None
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
        scaler.step(optimizer) if scaler is not None and moved else optimizer.step()
    common.step()  # last, since it also chooses the scale of the next step
