"""Multi-label classifiers from one known positive label per item."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_ROOMS = ("data", "losses", "metrics", "model", "report", "train")
_HOMES = {"SinglePositiveClassifier": "spml.use.estimator.classifier"}


def __getattr__(name: str) -> Any:
    """Rooms and classes load when first used, so that `import spml` and `spml --help` stay quick."""
    if name in _ROOMS:
        return import_module(f"spml.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'spml' has no attribute {name!r}")
