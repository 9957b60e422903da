"""Metrics of rankings and tags: logits against labels 1 and -1; unknown labels (0) are left out.

Every function takes numpy arrays or torch tensors of shape (items, classes) and returns floats or
numpy arrays. Unknown labels are removed before anything is ranked or counted. Labels y in {1, 0} of
other libraries are 2 * y - 1 here.
"""

from typing import TYPE_CHECKING

from spml import lazy_names
from spml.metrics.items import coverage, precision_at_k, ranking_loss, recall_at_k
from spml.metrics.reliability import calibration_error
from spml.metrics.scores import (
    average_precision,
    mean_average_precision,
    observed_average_precision,
)
from spml.metrics.selection import selection_score
from spml.metrics.thresholds import ThresholdMetrics, threshold_metrics

if TYPE_CHECKING:
    from spml.metrics.distributed import MeanAveragePrecision

__all__ = [
    "MeanAveragePrecision",
    "ThresholdMetrics",
    "average_precision",
    "calibration_error",
    "coverage",
    "mean_average_precision",
    "observed_average_precision",
    "precision_at_k",
    "ranking_loss",
    "recall_at_k",
    "selection_score",
    "threshold_metrics",
]

if not TYPE_CHECKING:
    # Lazy, because importing torchmetrics is slow.
    __getattr__ = lazy_names(__name__, {"MeanAveragePrecision": "spml.metrics.distributed"})
