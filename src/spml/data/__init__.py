"""Labels of items: tables, readers, the single-positive draw and the split."""

from spml.data.experiment import Experiment, load
from spml.data.names import near_duplicates
from spml.data.observe import observe, split
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
