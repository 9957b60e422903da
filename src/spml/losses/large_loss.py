"""Large-loss methods: the unknown labels with the largest loss are probably missed positives."""

from __future__ import annotations

from spml.losses.components import Constant, Largest
from spml.losses.search import searched
from spml.losses.terms import Absent, Log
from spml.losses.unified import Reduction, UnifiedLoss, assume_negative

SHARES = (0.001, 0.002, 0.004, 0.005, 0.01)


@searched({"delta": 0.005}, delta=SHARES)
def ll_r(delta: float = 0.002, reduction: Reduction = "mean") -> UnifiedLoss:
    """Large loss, rejection: the largest losses of unknown labels are set to 0 (Kim et al., 2022).

    Args:
        delta: share of the batch's entries rejected, times (epoch - 1).
        reduction: mean (over all entries, rejected ones too), sum, sum_classes or none.
    """
    return assume_negative(Log(), Absent(Log()), weight=Largest(delta, 0), reduction=reduction)


@searched({"delta": 0.005}, delta=SHARES)
def ll_ct(delta: float = 0.002, reduction: Reduction = "mean") -> UnifiedLoss:
    """Large loss, temporary correction: they are taken as positive in this step (Kim et al., 2022).

    Args:
        delta: share of the batch's entries corrected, times (epoch - 1).
        reduction: mean, sum, sum_classes or none.
    """
    return UnifiedLoss(
        Largest(delta, 1), Constant(1), Log(), Log(), Absent(Log()), reduction=reduction
    )
