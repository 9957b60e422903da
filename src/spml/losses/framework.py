"""The base class of every method, and the paper's framework: one loss with exchangeable parts."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from spml.losses.components import Constant, Context, Value

Part = Callable[[Tensor, Context], Value]
TermLike = Callable[[Tensor, Context], Tensor]
Reduction = Literal["mean", "sum", "sum_classes", "none"]
# Factor of the entries before they are summed, so that the sum of up to 2^24 does not overflow.
# Multiplying by a power of two changes no bit of entries above 1e-30.
SMALL = 2.0**-24
INPUTS = {
    "index": "the row of the training split of each item",
    "features": "the output of the head before its logits",
    "views": "the logits of a second, strongly augmented view",
}


class Method(nn.Module):
    """A loss with hooks that a training loop calls; by default every hook does nothing.

    A method implements `entries`, or `forward` if its loss is not a mean of entries.

    Before training, the loop calls `memory`, `prepare` (if features are needed), `parameter_groups`
    and `optimizer`. In each epoch it calls `begin_epoch`, then for every batch `see` and the method
    itself. If `wants_pass` returns True, it scores the whole training split in evaluation mode and
    passes the scores to `take_scores`, batch by batch. Then it calls `end_epoch` and `record`.
    Between `--linear-init` and end-to-end training it calls `carry_over`. All state is in
    `state_dict()`. An instance may need less, or more, than its class declares, depending on its
    options.

    The `features` of a call come from the classifier's head: class maps (items, classes, h, w) of a
    linear head, or an embedding of each label (items, classes, size) of a query head. Feature
    vectors are passed on unchanged. `views` are the logits of a second, strongly augmented view of
    each item; features then have twice as many rows, the second view's after the first's.

    Attributes:
        needs: inputs besides logits and labels: any of items, index, features, views, pass.
        head: classifier head that the method is meant for; None for the linear head.
        vector_head: the same for items that are feature vectors.
        trains_on: "observed" labels, or "complete" for the upper bound that sees all labels.
        reduction: of the entries to one number.
    """

    needs: frozenset[str] = frozenset()
    head: ClassVar[str | None] = None
    vector_head: ClassVar[str | None] = None
    trains_on: Literal["observed", "complete"] = "observed"
    reduction: Reduction = "mean"

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
        context = Context(logits.detach(), observed, epoch, epochs, index, features, views)
        for need, meaning in INPUTS.items():
            if need in self.needs and getattr(context, need) is None:
                raise ValueError(f"{type(self).__name__} needs {need}: {meaning}")
        if "index" in self.needs and context.index.shape != logits.shape[:1]:
            shapes = f"{tuple(context.index.shape)} for a batch of {tuple(logits.shape)}"
            raise ValueError(f"{type(self).__name__} needs index of each item, not {shapes}")
        return reduce(self.entries(logits, context), self.reduction)

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry, before the reduction; logits are in float32 or wider."""
        raise NotImplementedError

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        """Bytes that a method with these options keeps for a training split of that size."""
        return 0

    def prepare(self, features: Tensor) -> None:
        """Create parameters for the features of one item, or reject them (ValueError)."""

    def see(self, boxes: Tensor) -> None:
        """Receive the visible part of each picture of the next batch.

        Boxes are (items, 4): left, top, right, bottom in 0..1. In a mirrored picture, left > right.
        """

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Prepare for an epoch; epochs count from 1."""

    def wants_pass(self, epoch: int, epochs: int) -> bool:
        """Whether to score the training split after this epoch."""
        return "pass" in self.needs

    def take_scores(self, logits: Tensor, index: Tensor) -> None:
        """Receive scores of some items of the training split; a pass covers each item once."""

    def end_epoch(self, epoch: int, epochs: int) -> None:
        """Finish an epoch, after its training and its pass, if there was one."""

    def record(self, epoch: int, epochs: int) -> dict[str, float]:
        """Numbers that the method chose from the data, for the epoch's line of the history."""
        return {}

    def stage(self, epoch: int, epochs: int) -> tuple[int, int]:
        """The stage of training that an epoch belongs to: epochs before it, and its last epoch.

        A later stage starts from the best epoch so far, with a new optimiser and rate schedule.
        """
        return 0, epochs

    def carry_over(self) -> None:
        """Adapt the state when training of the head alone ends and end-to-end training begins."""

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The method's own parameters for the common optimiser; lr is the head's learning rate."""
        own = list(self.parameters())
        return [{"params": own, "lr": lr}] if own else []

    def optimizer(self) -> torch.optim.Optimizer | None:
        """An optimiser for parameters that parameter_groups leaves out; both step together."""
        return None


class UnifiedLoss(Method):
    """Loss of a batch of logits whose labels are partly known. Each entry contributes

        L1                              if the label is known positive (observed = 1),
        L3                              if it is known negative        (observed = -1),
        v (k_hat L2 + (1 - k_hat) L3)   if it is unknown               (observed = 0).

    Args:
        khat: probability that an unknown label is positive, from the model's own probability.
        weight: v, the weight of an unknown label.
        l1: loss of a known positive.
        l2: loss of an unknown label taken as positive; None if k_hat is always 0.
        l3: loss of a label taken as negative.
        regulariser: a penalty on the batch's probabilities (items, classes), added to every entry.
        reduction: "mean" over items and classes; "sum"; "sum_classes" (sum over classes, mean over
            items); "none".
        trains_on: "observed" labels, or "complete" for the upper bound that sees all labels.
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
        self.khat, self.weight = khat, weight
        self.l1, self.l2, self.l3 = l1, l2, l3
        self.regulariser = regulariser
        self.reduction, self.trains_on = reduction, trains_on

    def extra_repr(self) -> str:
        """The reduction, for logs."""
        return f"reduction={self.reduction}"

    def entries(self, logits: Tensor, context: Context) -> Tensor:
        """Loss of each entry."""
        p = context.logits  # detached: k_hat and v calibrate the model, they must not train it
        if any(getattr(part, "uses_p", True) for part in (self.khat, self.weight)):
            p = p.sigmoid()
        k, v = self.khat(p, context), self.weight(p, context)
        negative = self.l3(logits, context)
        entries = self._not_positive(k, v, negative, logits, context)
        entries = torch.where(context.observed == 1, self.l1(logits, context), entries)
        if self.regulariser is not None:
            entries = entries + self.regulariser(logits.sigmoid())
        return entries

    def _not_positive(
        self, k: Value, v: Value, negative: Tensor, logits: Tensor, context: Context
    ) -> Tensor:
        """v (k_hat L2 + (1 - k_hat) L3) for unknown labels, L3 for known ones."""
        unknown = context.observed == 0
        if isinstance(k, Tensor):
            k = torch.where(unknown, k, 0.0)
            mixed = torch.lerp(negative, self._positive(logits, context), k)
        elif k == 0:
            mixed = negative
        else:
            positive = self._positive(logits, context)
            mixed = positive if k == 1 else torch.lerp(negative, positive, k)

        if isinstance(k, Tensor) or k == 0:  # known labels hold L3 already
            if isinstance(v, Tensor):
                return mixed * torch.where(unknown, v, 1.0)
            if v == 1:
                return mixed
        return torch.where(unknown, mixed * v, negative)

    def _positive(self, logits: Tensor, context: Context) -> Tensor:
        if self.l2 is None:
            raise ValueError("this k_hat can be above 0, so the loss needs an l2")
        return self.l2(logits, context)


def assume_negative(
    l1: TermLike, l3: TermLike, *, weight: Part | None = None, **rest: Any
) -> UnifiedLoss:
    """The framework with k_hat = 0: unknown labels count as absent, with weight 1 by default."""
    return UnifiedLoss(Constant(0), weight or Constant(1), l1, None, l3, **rest)


def prepared(logits: Tensor, observed: Tensor) -> Tensor:
    """Logits in float32 or wider, because half precision cannot hold small probabilities.

    Raises:
        ValueError: logits and observed differ in shape.
    """
    if logits.shape != observed.shape:
        shapes = f"logits {tuple(logits.shape)} and observed {tuple(observed.shape)}"
        raise ValueError(f"{shapes} differ in shape")
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def reduce(entries: Tensor, reduction: Reduction) -> Tensor:
    """Reduce the loss of each (item, class) to one number; "none" returns the entries.

    The value of a sum beyond the largest number is half of that number; its gradient is exact.
    """
    if reduction == "none":
        return entries
    small = entries * SMALL
    if reduction == "mean":
        # Two steps compile to faster kernels for GR; without compilation, one step is faster.
        mean = small.mean(dim=-1).mean() if torch.compiler.is_compiling() else small.mean()
        return mean / SMALL
    total = small.sum() if reduction == "sum" else small.sum(dim=-1).mean()
    most = torch.finfo(total.dtype).max * SMALL / 2
    excess = (total - total.clamp(-most, most)).detach()
    return (total - excess) / SMALL


def value_and_gradient(loss: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """A function of the loss's arguments that returns its value and its gradient.

    Use it with logits.backward(gradient), for losses without state. When compiled, it reads a batch
    once and writes its gradient; separate forward and backward passes read the batch twice.
    """

    def call(logits: Tensor, observed: Tensor, **arguments: Any) -> tuple[Tensor, Tensor]:
        at = torch.func.grad_and_value(lambda z: loss(z, observed, **arguments))
        gradient, value = at(logits.detach())
        return value, gradient

    return call
