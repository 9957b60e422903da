"""BoostLU by itself: LL-R under the head that boosts positive class maps."""

from __future__ import annotations

from spml.losses.large_loss import SHARES, ll_r
from spml.losses.method import meant_for
from spml.losses.search import searched
from spml.losses.unified import Reduction, UnifiedLoss


@searched({"delta": 0.002}, delta=SHARES)
@meant_for(head="boostlu")
def boostlu(delta: float = 0.005, reduction: Reduction = "mean") -> UnifiedLoss:
    """Large loss, rejection, under the BoostLU head (Kim et al., 2023); with other losses: --head boostlu.

    Args:
        delta: share of the batch's entries rejected, times (epoch - 1).
        reduction: mean (over all entries, rejected ones too), sum, sum_classes or none.
    """
    return ll_r(delta, reduction)
