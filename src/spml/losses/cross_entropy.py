"""Assume-negative and its kin: cross-entropy with the unknown labels taken as negative, softened or weighted."""

from __future__ import annotations

import math

from torch import Tensor, nn

from spml.losses.components import Constant, OverOthers
from spml.losses.search import searched
from spml.losses.terms import Absent, Log, Mixed
from spml.losses.unified import Reduction, UnifiedLoss, assume_negative

AS_PUBLISHED = {
    "eps": 1e-5
}  # inside the logs of the published code: all that there is to try in these


@searched(AS_PUBLISHED)
def an(eps: float | None = None, reduction: Reduction = "mean") -> UnifiedLoss:
    """Assume negative: binary cross-entropy with every unknown label taken as absent (Cole et al., 2021).

    Args:
        eps: added to probabilities inside the log, as published (1e-5); None is the exact log.
        reduction: mean, sum, sum_classes or none.
    """
    return assume_negative(Log(eps), Absent(Log(eps)), reduction=reduction)


@searched({"smoothing": 0.2}, smoothing=(0.02, 0.05, 0.1, 0.2, 0.3))
def an_ls(
    smoothing: float = 0.1, eps: float | None = None, reduction: Reduction = "mean"
) -> UnifiedLoss:
    """Assume negative with label smoothing: targets 1 - smoothing and smoothing (Cole et al., 2021).

    An unknown label is positive with probability `smoothing`; a known negative is not smoothed.

    Args:
        smoothing: how far targets are moved from 1 and 0.
        eps: added to probabilities inside the log, as published (1e-5); None is the exact log.
        reduction: mean, sum, sum_classes or none.
    """
    if not 0 <= smoothing <= 1:
        raise ValueError(
            f"smoothing moves targets from 1 and 0, so it lies between them, not at {smoothing}"
        )
    present, absent = Log(eps), Absent(Log(eps))
    l1 = Mixed(1 - smoothing, present, absent)
    return UnifiedLoss(Constant(smoothing), Constant(1), l1, present, absent, reduction=reduction)


@searched(AS_PUBLISHED)
def wan(eps: float | None = None, reduction: Reduction = "mean") -> UnifiedLoss:
    """Weak assume negative: each unknown label counts 1 / (C - 1) (Cole et al., 2021).

    Args:
        eps: added to probabilities inside the log, as published (1e-5); None is the exact log.
        reduction: mean, sum, sum_classes or none.
    """
    return assume_negative(Log(eps), Absent(Log(eps)), weight=OverOthers(), reduction=reduction)


@searched(AS_PUBLISHED)
def epr(
    expected_positives: float = 1.5, eps: float | None = None, reduction: Reduction = "mean"
) -> UnifiedLoss:
    """Expected positive regularisation: learn positives, and keep their expected number right (Cole et al., 2021).

    Args:
        expected_positives: mean number of positive labels per item, known from elsewhere.
        eps: added to probabilities inside the log, as published (1e-5); None is the exact log.
        reduction: mean, sum, sum_classes or none.
    """
    return assume_negative(
        Log(eps),
        Absent(Log(eps)),
        weight=Constant(0),
        regulariser=ExpectedPositives(expected_positives),
        reduction=reduction,
    )


class ExpectedPositives(nn.Module):
    """Penalty on the mean number of positives an item is given, for being off the expected number."""

    def __init__(self, expected: float) -> None:
        super().__init__()
        if not 0 <= expected < math.inf:
            raise ValueError(f"expected_positives is 0 or more, not {expected}")
        self.expected = expected
        self.formula = f"(Σp/B − {expected:g})²/C²"

    def forward(self, p: Tensor) -> Tensor:
        """One number for the batch."""
        return (p.sum(dim=-1).mean() - self.expected).square() / p.shape[-1] ** 2

    def extra_repr(self) -> str:
        """The formula, for logs."""
        return self.formula


@searched(AS_PUBLISHED)
def full(eps: float | None = None, reduction: Reduction = "mean") -> UnifiedLoss:
    """Binary cross-entropy on complete labels: the upper bound. Entries whose label is unknown do not count.

    Args:
        eps: added to probabilities inside the log; None is the exact log.
        reduction: mean, sum, sum_classes or none.
    """
    return assume_negative(
        Log(eps), Absent(Log(eps)), weight=Constant(0), reduction=reduction, trains_on="complete"
    )
