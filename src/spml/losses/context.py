"""What the parts of a loss may look at, and hyper-parameters that move over training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

Value: TypeAlias = float | Tensor
RampLike: TypeAlias = Any  # a number, (start, end), one value per class, or a pair of such arrays


@dataclass(frozen=True, eq=False)
class Context:
    """What a part may look at besides its first argument.

    Attributes:
        logits: (items, classes), float32 or wider, cut off from the gradient.
        observed: (items, classes): 1 known positive, 0 unknown, -1 known negative.
        epoch: from 1 to `epochs`.
        epochs: how many epochs training takes.
        index: rows of the training split, for what remembers each item.
    """

    logits: Tensor
    observed: Tensor
    epoch: int = 1
    epochs: int = 1
    index: Tensor | None = None


class Ramp(nn.Module):
    """A hyper-parameter: constant, or linear over training, for all classes or per class.

    Args:
        value: a number; a pair (start, end); an array with one number per class; or a pair of such arrays.
        lag: epochs by which it runs late: the fraction of the way is (epoch - lag) / epochs.
    """

    start: Value
    end: Value

    def __init__(self, value: RampLike, *, lag: int = 0) -> None:
        super().__init__()
        pair = value if isinstance(value, (tuple, list)) and len(value) == 2 else None
        if pair is None and getattr(value, "ndim", 0) == 2:
            pair = tuple(value)
            if len(pair) != 2:
                raise ValueError(
                    f"a hyper-parameter per class has shape (classes,) or (2, classes), not {value.shape}"
                )
        start, end = (value, value) if pair is None else pair
        self.lag = lag
        self._set("start", start)
        self._set("end", end)

    def _set(self, name: str, value: Any) -> None:
        if isinstance(value, (Sequence, Tensor)) or getattr(value, "ndim", 0) > 0:
            try:
                tensor = torch.as_tensor(value, dtype=torch.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"{value!r} is not a number, (start, end) or one number per class"
                ) from error
            if bool(tensor.isnan().any()):
                raise ValueError(f"{value!r} holds nan, which is not a number")
            if tensor.ndim > 1:
                raise ValueError(
                    f"a hyper-parameter per class has one axis, not shape {tuple(tensor.shape)}"
                )
            if tensor.ndim == 1:
                self.register_buffer(name, tensor, persistent=False)
                return
            value = tensor.item()
        if isinstance(value, (bool, str)) or not hasattr(value, "__float__") or value != value:
            raise ValueError(f"{value!r} is not a number, (start, end) or one number per class")
        setattr(self, name, float(value))

    @property
    def constant(self) -> float | None:
        """Its value where it neither moves nor differs between classes."""
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

    def __str__(self) -> str:
        if isinstance(self.start, float) and isinstance(self.end, float):
            return f"{self.start:g}" if self.start == self.end else f"{self.start:g}→{self.end:g}"
        return "per class"

    def extra_repr(self) -> str:
        """Start, end and lag, for logs."""
        return f"{self}" + (f", lag={self.lag}" if self.lag else "")
