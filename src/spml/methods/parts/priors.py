"""Estimate the frequency of each class from scores and the known labels."""

import math
from typing import Any

import torch
from torch import Tensor


def estimate_priors(scores: Any, observed: Any, delta: float = 0.01, tau: float = 0.01) -> Tensor:
    """Share of positives of each class, from the best score threshold (Liu et al., CRISP).

    With q(z) the share of items scored z or higher and q_p(z) that of observed positives, q / q_p
    is at least the prior for every z, if observed positives represent all positives. The threshold
    is the score z that minimises q / q_p plus a bound on its error, the highest one of ties. A
    known negative counts in the number of items, never among those scored z or higher.

    Args:
        scores: (items, classes), probabilities or logits: only their order within a class matters.
        observed: (items, classes): 1 known positive, 0 unknown, -1 known negative.
        delta: probability that the bound on the error fails.
        tau: slack of the bound.

    Returns:
        float64 (classes,) in (0, 1]; nan for classes without an observed positive.
    """
    scores, observed = torch.as_tensor(scores).detach().cpu(), torch.as_tensor(observed).cpu()
    if scores.shape != observed.shape or scores.ndim != 2:
        raise ValueError(
            f"scores {tuple(scores.shape)} and observed {tuple(observed.shape)} "
            "must both be items by classes"
        )
    if not 0 < delta < 1 or tau < 0:
        raise ValueError(
            f"delta is a probability between 0 and 1, tau not negative; not {delta} and {tau}"
        )
    if bool(scores.isnan().any()):
        raise ValueError("priors cannot be estimated from scores that are NaN")
    pairs = zip(scores.unbind(dim=1), observed.unbind(dim=1), strict=True)
    return torch.tensor([_prior(*pair, delta, tau) for pair in pairs], dtype=torch.float64)


def _prior(scores: Tensor, observed: Tensor, delta: float, tau: float) -> float:
    items, positives = len(scores), int((observed == 1).sum())
    if positives == 0:
        return math.nan
    scores, order = scores.sort(descending=True)
    observed = observed[order]
    last = torch.ones_like(scores, dtype=torch.bool)  # of the items with the same score
    last[:-1] = scores[1:] != scores[:-1]
    q_p = (observed == 1).cumsum(0)[last].double() / positives
    q = (observed != -1).cumsum(0)[last].double() / items
    q, q_p = q[q_p > 0], q_p[q_p > 0]  # no threshold above the highest positive
    error = sum(math.sqrt(math.log(4 / delta) / (2 * count)) for count in (items, positives))
    best = int(((q + (1 + tau) * error) / q_p).argmin())
    return min(float(q[best] / q_p[best]), 1.0)
