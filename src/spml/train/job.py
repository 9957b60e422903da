"""The parts of a run, built and checked, and the order of its training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spml import losses
from spml.data import Experiment, LabelTable
from spml.data.images.loader import Rows
from spml.model import Classifier
from spml.runs.settings import Resolved


@dataclass(frozen=True)
class Job:
    """The parts of a run, built and checked.

    Attributes:
        experiment: the data.
        settings: of the run.
        options: all options of the method.
        method: built with the options.
        model: to be trained.
        labels: of the training split, as the method learns from them.
        validated_from: first epoch after which validation rows are scored; earlier ones cannot be
            selected.
        tested: whether the test rows are scored at the end.
    """

    experiment: Experiment
    settings: Resolved
    options: dict[str, Any]
    method: losses.Method
    model: Classifier
    labels: LabelTable
    validated_from: int = 0
    tested: bool = True


def epoch_order(seed: int, epoch: int, items: int) -> Rows:
    """Return the training rows in the order of an epoch."""
    return np.random.default_rng((seed, epoch)).permutation(items)
