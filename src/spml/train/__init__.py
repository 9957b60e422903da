"""Training: settings, the loop, and the run folder it writes."""

from importlib import import_module
from typing import Any

from spml.runs.settings import Settings

__all__ = ["Settings", "fit", "predict_logits"]
_HOMES = {"fit": "spml.train.fitting", "predict_logits": "spml.model.scoring"}


def __getattr__(name: str) -> Any:
    """What needs torch loads when first used."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'spml.train' has no attribute {name!r}")
