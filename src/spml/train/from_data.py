"""Options that a method takes from the user's data, in place of a benchmark's published values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spml.data import Experiment
from spml.data.readers.read import is_named

# docs/selection.md shows the runs behind these values.
FEW_CLASSES = 20  # most classes, and
MANY_POSITIVES = 40  # fewest observed positives of a class, at which pictures take GR_FLAT
GR_FLAT: dict[str, Any] = {"w": [0.0, 2.0], "b": [-2.0, -2.0]}  # published for VOC
GR_STEEP: dict[str, Any] = {"w": [0.0, 10.0], "b": [-2.0, -8.0]}  # published for 80 classes or more
COUNT = "expected_positives"
COUNTS = {"pictures": 1.5, "vectors": 2.9}  # for one observed positive; published for VOC and COCO
NAMES = {"gr": tuple(GR_FLAT), "epr": (COUNT,)}  # options of a method that own data decide


def options_from_data(
    method: str, experiment: Experiment, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options that the data decide; none for a benchmark, which has published values.

    Args:
        method: name of the method.
        experiment: the data; only observed labels of the training rows are counted.
        options: set by the user.
    """
    names = NAMES.get(method, ())
    if is_named(experiment.name) or not names or set(names) & set(options):
        return {}
    positives, classes = _observed(experiment), len(experiment.classes)
    x = experiment.observed.x
    vectors = x is not None and x.ndim == 2
    if method == "gr":
        few = classes <= FEW_CLASSES and positives >= MANY_POSITIVES * classes
        return GR_FLAT if vectors or few else GR_STEEP
    shown = max(positives / max(len(experiment.train_rows), 1), 1.0)
    return {COUNT: round(min(COUNTS["vectors" if vectors else "pictures"] * shown, classes), 2)}


def reason(method: str, experiment: Experiment, options: Mapping[str, Any]) -> str:
    """Describe the options that the data decided, for the first line of a run; "" for none."""
    own = options_from_data(method, experiment, {})
    if not own or any(options[name] != value for name, value in own.items()):
        return ""
    values = ", ".join(f"{name} {_plain(value)}" for name, value in own.items())
    counted = f"{len(experiment.classes)} classes, {_observed(experiment):,} observed positives"
    return f" ({values} for {counted})"


def _observed(experiment: Experiment) -> int:
    values = experiment.observed.sparse.take(experiment.train_rows).values
    return int((values == 1).sum())


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(f"{number:g}" for number in value)
    return f"{value:g}"
