"""Multi-label classifiers from one known positive label per item."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_PACKAGES = ("data", "losses", "metrics", "model", "report", "train")


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that imports each name from its home on first use.

    `import spml` and `spml --help` stay fast that way.

    Args:
        package: name of the module, for the error message.
        homes: name -> module that defines it, or the module itself if it has that name.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        return home if homes[name] == f"{package}.{name}" else getattr(home, name)

    return get


__getattr__ = lazy_names(
    "spml",
    {name: f"spml.{name}" for name in _PACKAGES}
    | {"SinglePositiveClassifier": "spml.use.estimator.classifier"},
)
