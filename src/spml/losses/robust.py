"""Losses made for noisy labels, in their two-class form, with unknown labels taken as absent."""

from __future__ import annotations

from spml.losses.context import RampLike
from spml.losses.search import searched
from spml.losses.terms import GCE, Absent, Symmetric, Taylor, Term
from spml.losses.unified import Reduction, UnifiedLoss, assume_negative


@searched({"q": 0.3}, q=(0.1, 0.3, 0.5, 0.7, 0.9))
def gce(q: RampLike = 0.7, reduction: Reduction = "mean") -> UnifiedLoss:
    """Generalised cross-entropy (Zhang & Sabuncu, 2018).

    Args:
        q: 0 is cross-entropy, 1 mean absolute error; a number, (start, end), or one per class.
        reduction: mean, sum, sum_classes or none.
    """
    return _both_sides(GCE(q), reduction)


@searched({"A": -9.21}, alpha=(0.01, 0.1, 1.0), beta=(0.1, 1.0), A=(-4.0, -9.21))
def sce(
    alpha: float = 0.1, beta: float = 1.0, A: float = -4.0, reduction: Reduction = "mean"
) -> UnifiedLoss:
    """Symmetric cross-entropy (Wang et al., 2019).

    Args:
        alpha: weight of cross-entropy.
        beta: weight of reverse cross-entropy.
        A: what stands for log 0; common code has log(1e-4) = -9.21.
        reduction: mean, sum, sum_classes or none.
    """
    return _both_sides(Symmetric(alpha, beta, A), reduction)


@searched({"order": 4}, order=(1, 2, 4, 6))
def taylor_ce(order: int = 2, reduction: Reduction = "mean") -> UnifiedLoss:
    """Taylor cross-entropy (Feng et al., 2020).

    Args:
        order: terms of the series; 1 is mean absolute error, many are cross-entropy.
        reduction: mean, sum, sum_classes or none.
    """
    return _both_sides(Taylor(order), reduction)


def _both_sides(term: Term, reduction: Reduction) -> UnifiedLoss:
    return assume_negative(term, Absent(term), reduction=reduction)
