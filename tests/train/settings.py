"""Resolved settings for tests of single parts."""

import numpy as np

from spml.data import LabelTable
from spml.data.experiment import Experiment
from spml.runs.settings import Resolved
from spml.train import Settings
from spml.train.resolve import resolve


def experiment(name: str, x=None) -> Experiment:
    """Three items, the last one for validation; pictures in files unless `x` is an array."""
    table = LabelTable(["a", "b", "c"], ["one", "two"], np.array([[1, 0]] * 3, np.int8), x=x)
    rows = np.array([0, 1]), np.array([2])
    return Experiment(name, table.classes, table, None, *rows, None, "observed")


def resolved(**settings) -> Resolved:
    """Settings of a run on pictures, on the CPU and without mirroring unless given."""
    return resolve(
        Settings(**{"flip": False, "accelerator": "cpu", **settings}), experiment("my.csv")
    )
