"""Losses made for noisy labels, in their two-class form, with unknown labels taken as absent."""

from __future__ import annotations

from spml.losses.context import RampLike
from spml.losses.terms import GCE, Absent, Symmetric, Taylor, Term
from spml.losses.unified import Reduction, UnifiedLoss, assume_negative


def gce(q: RampLike = 0.7, reduction: Reduction = "mean") -> UnifiedLoss:
    """Generalised cross-entropy (Zhang & Sabuncu, 2018).

    Args:
        q: 0 is cross-entropy, 1 mean absolute error; a number, (start, end), or one per class.
        reduction: mean, sum, sum_classes or none.
    """
    return _both_sides(GCE(q), reduction)


def sce(alpha: float = 0.1, beta: float = 1.0, A: float = -4.0, reduction: Reduction = "mean") -> UnifiedLoss:
    """Symmetric cross-entropy (Wang et al., 2019).

    Args:
        alpha: weight of cross-entropy.
        beta: weight of reverse cross-entropy.
        A: what stands for log 0; common code has log(1e-4) = -9.21.
        reduction: mean, sum, sum_classes or none.
    """
    return _both_sides(Symmetric(alpha, beta, A), reduction)


def taylor_ce(order: int = 2, reduction: Reduction = "mean") -> UnifiedLoss:
    """Taylor cross-entropy (Feng et al., 2020).

    Args:
        order: terms of the series; 1 is mean absolute error, many are cross-entropy.
        reduction: mean, sum, sum_classes or none.
    """
    return _both_sides(Taylor(order), reduction)


def _both_sides(term: Term, reduction: Reduction) -> UnifiedLoss:
    return assume_negative(term, Absent(term), reduction=reduction)
