"""All that a method, or a backbone, may draw from: seeded together, written down, and made as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed(number: int) -> None:
    """Of Python, numpy, torch and its devices."""
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number)


@contextmanager
def kept() -> Iterator[None]:
    """Whatever is seeded and drawn inside, each of them then stands where it stood."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def random_state(device: torch.device) -> dict[str, Any]:
    """Where each of them stands, in tensors and plain values; of devices, that which trains."""
    of_numpy: Any = np.random.get_state()
    name, numbers, *rest = of_numpy
    state: dict[str, Any] = {"rng": torch.get_rng_state(), "python_rng": random.getstate()}
    state["numpy_rng"] = (name, numbers.tolist(), *rest)
    if device.type != "cpu":
        state[f"{device.type}_rng"] = torch.get_device_module(device).get_rng_state()
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Make them as they were, as far as the state tells, which may be older or of another device; taken out of it."""
    told = {name: state.pop(name) for name in [*state] if name.endswith("rng")}
    torch.set_rng_state(told["rng"])
    if "python_rng" in told:
        random.setstate(told["python_rng"])
        np.random.set_state(told["numpy_rng"])
    if device.type != "cpu" and f"{device.type}_rng" in told:
        torch.get_device_module(device).set_rng_state(told[f"{device.type}_rng"])
