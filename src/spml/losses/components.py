"""The k_hat and v of the framework: how likely an unknown label is positive, and how much it counts.

They see the model's probabilities cut off from the gradient; the cut stands in `UnifiedLoss`, not here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from spml.losses.context import Context, Ramp, RampLike, Value


class Component(nn.Module):
    """A function of the model's probability; `formula` is how the docs print it.

    Attributes:
        uses_p: False where it does not look at p, which then need not be computed.
    """

    formula: str
    uses_p = True

    def forward(self, p: Tensor, context: Context) -> Value:
        """Value for each entry, or one number for all."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """The formula, for logs."""
        return self.formula


class Constant(Component):
    """The same for every unknown label."""

    uses_p = False

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value
        self.formula = f"{value:g}"

    def forward(self, p: Tensor, context: Context) -> Value:
        """The number."""
        return self.value


class Logistic(Component):
    """Soft pseudo-labels sigmoid(w p + b): flat while w is 0, a threshold at -b/w as w grows."""

    def __init__(self, w: RampLike, b: RampLike, lag: int = 0) -> None:
        super().__init__()
        self.w, self.b = Ramp(w, lag=lag), Ramp(b, lag=lag)
        self.formula = f"1/(1 + exp(−(w p + b))), w = {self.w}, b = {self.b}"

    def forward(self, p: Tensor, context: Context) -> Value:
        """Probability that each entry is positive."""
        return torch.sigmoid(p * self.w.at(context) + self.b.at(context))


class Posterior(Component):
    """(1 - a) p / (1 - a p): P(positive | unknown) when a positive is observed with probability a, whichever it is."""

    def __init__(self, a: RampLike) -> None:
        super().__init__()
        self.a = Ramp(a)
        for value in (self.a.start, self.a.end):
            tensor = torch.as_tensor(value)
            if not bool(((tensor >= 0) & (tensor < 1)).all()):
                raise ValueError(f"a is a probability below 1, not {value}")
        self.formula = f"(1 − a) p/(1 − a p), a = {self.a}"

    def forward(self, p: Tensor, context: Context) -> Value:
        """Probability that each entry is positive."""
        a = self.a.at(context)
        return (1 - a) * p / (1 - a * p)


class Step(Component):
    """Hard pseudo-labels: 1 above a threshold, from some epoch on."""

    def __init__(self, tau: RampLike, from_epoch: int = 1) -> None:
        super().__init__()
        self.tau, self.from_epoch = Ramp(tau), from_epoch
        self.formula = f"1 if p > {self.tau} else 0" + (
            f" (from epoch {from_epoch})" if from_epoch > 1 else ""
        )

    def forward(self, p: Tensor, context: Context) -> Value:
        """1 where an entry is taken as positive, else 0."""
        return (p > self.tau.at(context)).to(p.dtype) if context.epoch >= self.from_epoch else 0.0


class TwoThresholds(Component):
    """Hard pseudo-labels with a gap: 1 from `upper` on, 0 up to `lower`, undefined between.

    Between the thresholds it gives 0; `OutsideGap` of the same thresholds is the v that takes those entries out.
    """

    def __init__(self, upper: RampLike, lower: RampLike) -> None:
        super().__init__()
        self.upper, self.lower = Ramp(upper), Ramp(lower)
        self.formula = f"1 if p ≥ {self.upper}, 0 if p ≤ {self.lower}, else undefined"

    def forward(self, p: Tensor, context: Context) -> Value:
        """1 where an entry is taken as positive, else 0."""
        return (p >= self.upper.at(context)).to(p.dtype)


class OutsideGap(Component):
    """v of two-threshold pseudo-labels: 0 strictly between the thresholds, else 1."""

    def __init__(self, upper: RampLike, lower: RampLike) -> None:
        super().__init__()
        self.upper, self.lower = Ramp(upper), Ramp(lower)
        self.formula = f"0 if {self.lower} < p < {self.upper}, else 1"

    def forward(self, p: Tensor, context: Context) -> Value:
        """1 where the pseudo-label is defined, else 0."""
        return ((p >= self.upper.at(context)) | (p <= self.lower.at(context))).to(p.dtype)


class Gaussian(Component):
    """exp(-(p - mu)^2 / (2 sigma^2)): entries near mu count most."""

    def __init__(self, mu: RampLike, sigma: RampLike, lag: int = 0) -> None:
        super().__init__()
        self.mu, self.sigma = Ramp(mu, lag=lag), Ramp(sigma, lag=lag)
        for value in (self.sigma.start, self.sigma.end):
            if not bool((torch.as_tensor(value) > 0).all()):
                raise ValueError(f"sigma must be positive, not {value}")
        self.formula = f"exp(−(p − μ)²/(2σ²)), μ = {self.mu}, σ = {self.sigma}"

    def forward(self, p: Tensor, context: Context) -> Value:
        """Weight of each entry."""
        sigma = self.sigma.at(context)
        return torch.exp((p - self.mu.at(context)).square() * (-0.5 / (sigma * sigma)))


class OverOthers(Component):
    """1 / (C - 1): the unknown labels of an item weigh as much together as its one positive."""

    formula = "1/(C − 1)"
    uses_p = False

    def forward(self, p: Tensor, context: Context) -> Value:
        """The number."""
        return 1 / max(p.shape[-1] - 1, 1)


class Largest(Component):
    """Picks the unknown entries of the batch with the largest loss under assume-negative.

    At epoch t the ceil(B C (t - 1) delta) largest are picked; none in the first epoch. That loss grows with the
    logit, so logits are ranked. Entries tied with the last one are picked too; known labels never are.

    Args:
        delta: share of the batch's entries by which the pick grows each epoch.
        value: what a picked entry gets; the others get 1 - value.
    """

    uses_p = False

    def __init__(self, delta: float, value: float) -> None:
        super().__init__()
        if not 0 <= delta <= 1:
            raise ValueError(
                f"delta is the share of entries by which the pick grows each epoch, not {delta}"
            )
        self.delta, self.value = delta, value
        share = f"the {delta * 100:g} %·(t − 1) largest p of the batch"
        self.formula = f"{value:g} for {share}, else {1 - value:g}"

    def forward(self, p: Tensor, context: Context) -> Value:
        """`value` on picked entries, 1 - `value` elsewhere."""
        picked = largest_unknown(context.logits, context.observed, (context.epoch - 1) * self.delta)
        return (
            1 - self.value
            if picked is None
            else torch.where(picked, self.value, 1 - self.value).to(p.dtype)
        )


def largest_unknown(logits: Tensor, observed: Tensor, share: float) -> Tensor | None:
    """The unknown entries with the largest logits, and any tied with the last, as a mask; None where none is wanted.

    Args:
        logits: of the batch.
        observed: of the batch.
        share: of all entries, known ones too, that is wanted, rounded up to a whole number of them.
    """
    count = min(math.ceil(round(share * logits.numel(), 9)), logits.numel())
    if count <= 0:  # below 0 where epochs are counted from 0
        return None
    unknown = observed == 0
    ranked = logits.masked_fill(~unknown, -math.inf)
    least = ranked.flatten().topk(count, sorted=False).values.min()
    return unknown & (ranked >= least)
