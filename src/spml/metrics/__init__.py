"""How good a ranking or a set of tags is: logits against labels in {1, -1}, where 0 is left out.

Every function takes numpy arrays or torch tensors of shape (items, classes) and gives floats or numpy arrays. An
unknown label (0) is removed before anything is ranked or counted: labels y in {1, 0}, as other libraries have them, are
2 * y - 1 here.
"""

from typing import TYPE_CHECKING, Any

from spml.metrics.items import coverage, precision_at_k, ranking_loss, recall_at_k
from spml.metrics.precision import (
    average_precision,
    estimated_map,
    mean_average_precision,
    observed_average_precision,
)
from spml.metrics.reliability import calibration_error
from spml.metrics.thresholds import ThresholdMetrics, threshold_metrics

if TYPE_CHECKING:
    from spml.metrics.distributed import MeanAveragePrecision

__all__ = [
    "MeanAveragePrecision",
    "ThresholdMetrics",
    "average_precision",
    "calibration_error",
    "coverage",
    "estimated_map",
    "mean_average_precision",
    "observed_average_precision",
    "precision_at_k",
    "ranking_loss",
    "recall_at_k",
    "threshold_metrics",
]


def __getattr__(name: str) -> Any:
    """MeanAveragePrecision loads when first used, because torchmetrics is slow to import."""
    if name == "MeanAveragePrecision":
        from spml.metrics.distributed import MeanAveragePrecision

        return MeanAveragePrecision
    raise AttributeError(f"module 'spml.metrics' has no attribute {name!r}")
