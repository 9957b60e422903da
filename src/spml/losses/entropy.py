"""Entropy maximisation: unknown labels are told to stay undecided."""

from __future__ import annotations

from spml.losses.components import Constant
from spml.losses.search import searched
from spml.losses.terms import Absent, Log, NegativeEntropy
from spml.losses.unified import Reduction, UnifiedLoss


@searched({"alpha": 0.1}, {"alpha": 0.2}, alpha=(0.01, 0.05, 0.1, 0.2, 0.4))
def em(alpha: float = 0.2, eps: float | None = None, reduction: Reduction = "mean") -> UnifiedLoss:
    """Entropy maximisation on unknown labels; the loss can be negative, as it should (Zhou et al., 2022).

    Args:
        alpha: weight of the entropy.
        eps: added to probabilities inside the logs, as published (1e-5); None is the exact log.
        reduction: mean, sum, sum_classes or none.
    """
    return UnifiedLoss(
        khat=Constant(1),
        weight=Constant(alpha),
        l1=Log(eps),
        l2=NegativeEntropy(eps),
        l3=Absent(Log(eps)),
        reduction=reduction,
    )
