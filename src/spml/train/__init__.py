"""Training: `fit` trains a model with `Settings` and writes a run folder."""

from importlib import import_module
from typing import Any

from spml.runs.settings import Settings

__all__ = ["Settings", "fit", "predict_logits"]
_HOMES = {"fit": "spml.train.fitting", "predict_logits": "spml.model.scoring"}


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'spml.train' has no attribute {name!r}")
