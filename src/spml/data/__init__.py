"""Labels of items: tables, readers, the single-positive draw and the split."""

from typing import TYPE_CHECKING

from spml import lazy_names

if TYPE_CHECKING:
    from spml.data.experiment import Experiment, load, split
    from spml.data.names import near_duplicates
    from spml.data.observation import observe
    from spml.data.readers.read import read
    from spml.data.table import LabelTable, SparseLabels
    from spml.errors import DataError

__all__ = [
    "DataError",
    "Experiment",
    "LabelTable",
    "SparseLabels",
    "load",
    "near_duplicates",
    "observe",
    "read",
    "split",
]

if not TYPE_CHECKING:
    # Lazy, so that `spml prepare --help` can list the benchmarks without importing numpy.
    __getattr__ = lazy_names(
        __name__,
        {
            "DataError": "spml.errors",
            "Experiment": "spml.data.experiment",
            "LabelTable": "spml.data.table",
            "SparseLabels": "spml.data.table",
            "load": "spml.data.experiment",
            "near_duplicates": "spml.data.names",
            "observe": "spml.data.observation",
            "read": "spml.data.readers.read",
            "split": "spml.data.experiment",
        },
    )
