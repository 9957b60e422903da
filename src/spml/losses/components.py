"""k_hat and v of the framework: how likely an unknown label is positive, and how much it counts.

They receive detached probabilities; `UnifiedLoss` detaches them, not this module. Their parameters
are ramps: hyper-parameters that may change over training and differ between classes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

Value: TypeAlias = float | Tensor
RampLike: TypeAlias = Any  # a number, (start, end), one value per class, or a pair of such arrays


@dataclass(frozen=True, eq=False)
class Context:
    """Batch, epoch and optional inputs that the parts of a loss may use.

    Attributes:
        logits: (items, classes), float32 or wider, detached.
        observed: (items, classes): 1 known positive, 0 unknown, -1 known negative.
        epoch: from 1 to `epochs`.
        epochs: number of epochs of the training.
        index: rows of the training split; this and the next two are tensors if the method needs
            them, else None.
        features: of the items, from the classifier's head.
        views: logits of a second, strongly augmented view.
    """

    logits: Tensor
    observed: Tensor
    epoch: int = 1
    epochs: int = 1
    index: Any = None
    features: Any = None
    views: Any = None


class Ramp(nn.Module):
    """A hyper-parameter that is constant or linear over training, for all classes or per class.

    Args:
        value: a number; a pair (start, end); an array with one number per class; or a pair of
            such arrays.
        lag: delay in epochs: the ramp has covered the fraction (epoch - lag) / epochs.
    """

    start: Value
    end: Value

    def __init__(self, value: RampLike, *, lag: int = 0) -> None:
        super().__init__()
        paired = isinstance(value, (tuple, list)) or getattr(value, "ndim", 0) == 2
        ends = value if paired and len(value) == 2 else (value, value)
        self.lag = lag
        for name, end in zip(("start", "end"), map(_numbers, ends), strict=True):
            if isinstance(end, Tensor):
                self.register_buffer(name, end, persistent=False)
            else:
                setattr(self, name, end)

    @property
    def constant(self) -> float | None:
        """The value if it neither changes over training nor differs between classes, else None."""
        if isinstance(self.start, float) and isinstance(self.end, float) and self.start == self.end:
            return self.start
        return None

    def at(self, context: Context) -> Value:
        """Value in this epoch: a number, or a tensor with one entry per class."""
        if self.constant is not None:
            return self.constant
        fraction = min(max(context.epoch - self.lag, 0) / context.epochs, 1.0)
        value: Value = self.start + (self.end - self.start) * fraction
        return value.to(context.logits.dtype) if isinstance(value, Tensor) else value

    def require(self, holds: Callable[[Tensor], Tensor], message: str) -> None:
        """Raise ValueError if a value at the start or the end does not satisfy the condition."""
        for value in (self.start, self.end):
            if not bool(holds(torch.as_tensor(value)).all()):
                raise ValueError(f"{message}, not {value}")

    def __str__(self) -> str:
        if isinstance(self.start, Tensor) or isinstance(self.end, Tensor):
            return "per class"
        return f"{self.start:g}" if self.start == self.end else f"{self.start:g}→{self.end:g}"

    def extra_repr(self) -> str:
        """Start, end and lag, for logs."""
        return f"{self}" + (f", lag={self.lag}" if self.lag else "")


def _numbers(value: Any) -> Value:
    """A float, or a tensor with one number per class."""
    expected = "is not a number, (start, end) or one number per class"
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{value!r} {expected}") from error
    if isinstance(value, bool) or bool(numbers.isnan().any()):
        raise ValueError(f"{value!r} {expected}")
    if numbers.ndim > 1:
        raise ValueError(f"an array of shape {tuple(numbers.shape)} {expected}")
    return numbers if numbers.ndim == 1 else numbers.item()


class Component(nn.Module):
    """A function of the model's probability; the docs print its `formula`.

    Attributes:
        uses_p: False if it ignores p, so that p need not be computed.
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
        return self.value


class Logistic(Component):
    """Soft pseudo-labels sigmoid(w p + b): flat while w is 0, a threshold at -b/w as w grows."""

    def __init__(self, w: RampLike, b: RampLike, lag: int = 0) -> None:
        super().__init__()
        self.w, self.b = Ramp(w, lag=lag), Ramp(b, lag=lag)
        self.formula = f"1/(1 + exp(−(w p + b))), w = {self.w}, b = {self.b}"

    def forward(self, p: Tensor, context: Context) -> Value:
        return torch.sigmoid(p * self.w.at(context) + self.b.at(context))


class Posterior(Component):
    """(1 - a) p / (1 - a p): P(positive | unknown) if a positive is observed with probability a."""

    def __init__(self, a: RampLike) -> None:
        super().__init__()
        self.a = Ramp(a)
        self.a.require(lambda a: (a >= 0) & (a < 1), "a is a probability below 1")
        self.formula = f"(1 − a) p/(1 − a p), a = {self.a}"

    def forward(self, p: Tensor, context: Context) -> Value:
        a = self.a.at(context)
        return (1 - a) * p / (1 - a * p)


class Step(Component):
    """Hard pseudo-labels: 1 above a threshold, from some epoch on."""

    def __init__(self, tau: RampLike, from_epoch: int = 1) -> None:
        super().__init__()
        self.tau, self.from_epoch = Ramp(tau), from_epoch
        start = f" (from epoch {from_epoch})" if from_epoch > 1 else ""
        self.formula = f"1 if p > {self.tau} else 0{start}"

    def forward(self, p: Tensor, context: Context) -> Value:
        return (p > self.tau.at(context)).to(p.dtype) if context.epoch >= self.from_epoch else 0.0


class TwoThresholds(Component):
    """Hard pseudo-labels with a gap: 1 from `upper` on, 0 up to `lower`, undefined between.

    Between the thresholds it returns 0; use `OutsideGap` with the same thresholds as v to exclude
    those entries.
    """

    template = "1 if p ≥ {upper}, 0 if p ≤ {lower}, else undefined"

    def __init__(self, upper: RampLike, lower: RampLike) -> None:
        super().__init__()
        self.upper, self.lower = Ramp(upper), Ramp(lower)
        self.formula = self.template.format(upper=self.upper, lower=self.lower)

    def forward(self, p: Tensor, context: Context) -> Value:
        return (p >= self.upper.at(context)).to(p.dtype)


class OutsideGap(TwoThresholds):
    """v of two-threshold pseudo-labels: 0 strictly between the thresholds, else 1."""

    template = "0 if {lower} < p < {upper}, else 1"

    def forward(self, p: Tensor, context: Context) -> Value:
        return ((p >= self.upper.at(context)) | (p <= self.lower.at(context))).to(p.dtype)


class Gaussian(Component):
    """exp(-(p - mu)^2 / (2 sigma^2)): entries near mu count most."""

    def __init__(self, mu: RampLike, sigma: RampLike) -> None:
        super().__init__()
        self.mu, self.sigma = Ramp(mu), Ramp(sigma)
        self.sigma.require(lambda sigma: sigma > 0, "sigma must be positive")
        self.formula = f"exp(−(p − μ)²/(2σ²)), μ = {self.mu}, σ = {self.sigma}"

    def forward(self, p: Tensor, context: Context) -> Value:
        sigma = self.sigma.at(context)
        return torch.exp((p - self.mu.at(context)).square() * (-0.5 / (sigma * sigma)))


class OverOthers(Component):
    """1 / (C - 1): all unknown labels of an item together weigh as much as its one positive."""

    formula = "1/(C − 1)"
    uses_p = False

    def forward(self, p: Tensor, context: Context) -> Value:
        return 1 / max(p.shape[-1] - 1, 1)


class Largest(Component):
    """Select the unknown entries of the batch with the largest assume-negative loss.

    At epoch t it selects the ceil(B C (t - 1) delta) largest, so none in the first epoch. The loss
    grows with the logit, so it ranks logits. Ties with the last entry are selected too; known
    labels never are.

    Args:
        delta: share of the batch's entries by which the selection grows each epoch.
        value: result for a selected entry; the result for the others is 1 - value.
    """

    uses_p = False

    def __init__(self, delta: float, value: float) -> None:
        super().__init__()
        self.delta, self.value = delta, value
        share = f"the {delta * 100:g} %·(t − 1) largest p of the batch"
        self.formula = f"{value:g} for {share}, else {1 - value:g}"

    def forward(self, p: Tensor, context: Context) -> Value:
        share = (context.epoch - 1) * self.delta
        selected = largest_unknown(context.logits, context.observed, share)
        if selected is None:
            return 1 - self.value
        return torch.where(selected, self.value, 1 - self.value).to(p.dtype)


def largest_unknown(logits: Tensor, observed: Tensor, share: float) -> Tensor | None:
    """Mask of the unknown entries with the largest logits, ties included; None if share is 0.

    The share of all entries, known ones included, is rounded up to a whole number of them.
    """
    count = min(math.ceil(round(share * logits.numel(), 9)), logits.numel())
    if count <= 0:  # below 0 if epochs count from 0
        return None
    unknown = observed == 0
    ranked = logits.masked_fill(~unknown, -math.inf)
    least = ranked.flatten().topk(count, sorted=False).values.min()
    return unknown & (ranked >= least)
