"""The paper's framework: one loss with exchangeable parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from spml.losses.components import Constant
from spml.losses.context import Context, Value
from spml.losses.method import Method, prepared

Part = Callable[[Tensor, Context], Value]
TermLike = Callable[[Tensor, Context], Tensor]
Reduction = Literal["mean", "sum", "sum_classes", "none"]


class UnifiedLoss(Method):
    """Loss of a batch of logits whose labels are partly known. Each entry contributes

        L1                              where the label is known positive (observed = 1),
        L3                              where it is known negative        (observed = -1),
        v (k_hat L2 + (1 - k_hat) L3)   where it is unknown               (observed = 0).

    Args:
        khat: probability that an unknown label is positive, from the model's own probability.
        weight: v, how much an unknown label counts.
        l1: loss of a known positive.
        l2: loss of an unknown label taken as positive; None where k_hat is always 0.
        l3: loss of a label taken as negative.
        regulariser: a penalty on the batch's probabilities (items, classes), added to every entry.
        reduction: "mean" over items and classes; "sum"; "sum_classes" (sum over classes, mean over items); "none".
        trains_on: "observed" labels, or "complete" for the upper bound that sees them all.
    """

    def __init__(
        self,
        khat: Part,
        weight: Part,
        l1: TermLike,
        l2: TermLike | None,
        l3: TermLike,
        *,
        regulariser: Callable[[Tensor], Tensor] | None = None,
        reduction: Reduction = "mean",
        trains_on: Literal["observed", "complete"] = "observed",
    ) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise ValueError(
                f"reduction is one of {', '.join(get_args(Reduction))}, not {reduction!r}"
            )
        self.khat, self.weight = khat, weight
        self.l1, self.l2, self.l3 = l1, l2, l3
        self.regulariser = regulariser
        self.reduction: Reduction = reduction
        self.trains_on = trains_on

    def extra_repr(self) -> str:
        """The reduction, for logs."""
        return f"reduction={self.reduction}"

    def forward(
        self,
        logits: Tensor,
        observed: Tensor,
        *,
        epoch: int = 1,
        epochs: int = 1,
        index: Tensor | None = None,
        features: Tensor | None = None,
        views: Tensor | None = None,
    ) -> Tensor:
        """Loss of a batch; logits and observed are (items, classes), epoch counts from 1."""
        logits = prepared(logits, observed)
        context = Context(logits.detach(), observed, epoch, epochs, index)
        p = context.logits  # k_hat and v calibrate the model, they must not train it
        if any(getattr(part, "uses_p", True) for part in (self.khat, self.weight)):
            p = p.sigmoid()
        k, v = self.khat(p, context), self.weight(p, context)
        negative = self.l3(logits, context)
        entries = self._not_positive(k, v, negative, logits, context)
        entries = torch.where(observed == 1, self.l1(logits, context), entries)
        if self.regulariser is not None:
            entries = entries + self.regulariser(logits.sigmoid())
        return reduce(entries, self.reduction)

    def _not_positive(
        self, k: Value, v: Value, negative: Tensor, logits: Tensor, context: Context
    ) -> Tensor:
        """v (k_hat L2 + (1 - k_hat) L3) where the label is unknown, L3 where it is known."""
        unknown = context.observed == 0
        if isinstance(k, Tensor):
            mixed = torch.lerp(
                negative, self._positive(logits, context), torch.where(unknown, k, 0.0)
            )
        elif k == 0:
            mixed = negative
        else:
            positive = self._positive(logits, context)
            mixed = positive if k == 1 else torch.lerp(negative, positive, k)
        if isinstance(k, Tensor) or k == 0:  # then it is L3 already where the label is known
            if isinstance(v, Tensor):
                return mixed * torch.where(unknown, v, 1.0)
            if v == 1:
                return mixed
        return torch.where(unknown, mixed * v, negative)

    def _positive(self, logits: Tensor, context: Context) -> Tensor:
        if self.l2 is None:
            raise ValueError("this k_hat can be above 0, so the loss needs an l2")
        return self.l2(logits, context)


def value_and_gradient(loss: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """A function of the loss's arguments that gives its value and its gradient at the logits, for logits.backward().

    For losses that remember nothing. Compiled, it reads a batch once and writes its gradient, where forward and
    backward by themselves read it twice.
    """

    def call(logits: Tensor, observed: Tensor, **arguments: Any) -> tuple[Tensor, Tensor]:
        at = torch.func.grad_and_value(lambda z: loss(z, observed, **arguments))
        gradient, value = at(logits.detach())
        return value, gradient

    return call


def assume_negative(
    l1: TermLike, l3: TermLike, *, weight: Part | None = None, **rest: Any
) -> UnifiedLoss:
    """The framework with k_hat = 0: every unknown label is taken as absent, and counts 1 unless a weight is given."""
    return UnifiedLoss(Constant(0), weight or Constant(1), l1, None, l3, **rest)


def reduce(entries: Tensor, reduction: Reduction) -> Tensor:
    """One number from the loss of each (item, class), or the entries themselves."""
    if (
        reduction == "mean"
    ):  # compiled, two steps make quicker kernels for GR; otherwise one step is quicker
        return entries.mean(dim=-1).mean() if torch.compiler.is_compiling() else entries.mean()
    if reduction == "sum":
        return entries.sum()
    return entries.sum(dim=-1).mean() if reduction == "sum_classes" else entries
