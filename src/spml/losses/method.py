"""What a method may offer a training loop besides being called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

Factory = TypeVar("Factory", bound=Callable[..., Any])


class Method(nn.Module):
    """A loss with a life over training; every hook has a default that does nothing.

    A loop calls prepare once where features are needed; in each epoch begin_epoch, then for every batch see and the
    method itself; then, where wants_pass says so, it takes the scores of the whole training split in evaluation mode to
    `take_scores`, batch by batch; then end_epoch. All that a method remembers is in its parameters and buffers, and so
    in its state_dict(). An instance may need less, or more, than its class says, by its options.

    A call's `features` are what the classifier's head has to show: class maps (items, classes, h, w) of a linear head,
    or an embedding of each label (items, classes, size) of a query head; feature vectors are given as they are.
    `views` are the logits of a second, strongly augmented view of each item; features then have twice as many rows,
    those of the second view after those of the first.

    Attributes:
        needs: what it wants besides logits and labels: of items, index, features, views, pass.
        head: of the classifier that it is meant for, where that is not the linear one.
        vector_head: the same where items are feature vectors.
        trains_on: "observed" labels, or "complete" for the upper bound that sees them all.
    """

    needs: frozenset[str] = frozenset()
    head: ClassVar[str | None] = None
    vector_head: ClassVar[str | None] = None
    trains_on: Literal["observed", "complete"] = "observed"

    @classmethod
    def memory(cls, items: int, classes: int, **options: Any) -> int:
        """Bytes that a method with these options keeps for a training split of that size."""
        return 0

    def prepare(self, features: Tensor) -> None:
        """Features of one item, before training: make what depends on their size, or refuse them (ValueError)."""

    def see(self, boxes: Tensor) -> None:
        """What part of its picture each item of the coming batch shows: (items, 4), left, top, right, bottom in 0..1.

        Left is greater than right where the picture is mirrored.
        """

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """An epoch, counted from 1, is about to be trained."""

    def wants_pass(self, epoch: int, epochs: int) -> bool:
        """Whether the scores of the training split are wanted after this epoch's training."""
        return "pass" in self.needs

    def take_scores(self, logits: Tensor, index: Tensor) -> None:
        """Scores of some items of the training split; each item comes once in a pass."""

    def end_epoch(self, epoch: int, epochs: int) -> None:
        """An epoch was trained, and the pass made where it was wanted."""

    def carry_over(self) -> None:
        """Training of the head alone is over; what is remembered is taken along into training end to end."""

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Its own parameters for the optimiser, given the head's learning rate."""
        own = list(self.parameters())
        return [{"params": own, "lr": lr}] if own else []

    def optimizer(self) -> torch.optim.Optimizer | None:
        """An optimiser of its own for parameters that parameter_groups leaves out, stepped with the other."""
        return None


def meant_for(head: str) -> Callable[[Factory], Factory]:
    """Marks a function that makes a method with the head that the method is meant for."""

    def mark(factory: Factory) -> Factory:
        marked: Any = factory
        marked.head = marked.vector_head = head
        return factory

    return mark


def prepared(logits: Tensor, observed: Tensor) -> Tensor:
    """The logits in float32 or wider, since half cannot hold small probabilities; shapes that differ are refused."""
    if logits.shape != observed.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and observed {tuple(observed.shape)} differ in shape"
        )
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
