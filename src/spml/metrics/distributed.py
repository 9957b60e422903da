"""Mean average precision accumulated over batches and processes."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from spml.errors import UserError
from spml.metrics.scores import Values, average_precision, scores_and_labels


class PrecisionResult(TypedDict):
    """The macro mean, and the average precision of each class, in [0, 1]."""

    map: float
    per_class: npt.NDArray[np.float64]


class MeanAveragePrecision(Metric):
    """Average precision of the items of all processes, each item once.

    A distributed sampler pads its shards with items of other shards: with `index`, a repeated item
    counts once. Logits are stored as float32; call `set_dtype(torch.float64)` before the first
    update to store float64.

    Example:
        >>> metric = MeanAveragePrecision()
        >>> logits, truth = torch.tensor([[2.0], [1.0]]), torch.tensor([[1], [-1]])
        >>> metric.update(logits, truth, index=torch.tensor([0, 1]))
        >>> metric.compute()["map"]
        1.0
    """

    full_state_update = False
    higher_is_better = True
    is_differentiable = False

    logits: list[Tensor]
    truth: list[Tensor]
    index: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Flat tensors: a process without items must gather too, without knowing the classes.
        for name in ("logits", "truth", "index"):
            self.add_state(name, default=[], dist_reduce_fx="cat")
        self._classes: int | None = None

    def update(self, logits: Values, truth: Values, index: Values | None = None) -> None:
        """Add a batch.

        Args:
            logits: scores of (items, classes).
            truth: 1 positive, -1 negative, 0 unknown: left out of its class.
            index: number of each item in the data set; without it repeated items count each time.
        """
        scores, labels = scores_and_labels(logits, truth, "the truth")
        items, classes = scores.shape
        if self._classes not in (None, classes):
            raise UserError(f"this batch has {classes} classes, those before it {self._classes}")
        rows = torch.full((items,), -1) if index is None else torch.as_tensor(index)
        wrong = rows.shape != (items,) or rows.is_floating_point()
        if wrong or (index is not None and (rows < 0).any()):
            raise UserError(f"index must hold a whole number from 0 for each of the {items} items")
        self._classes = classes
        self.logits.append(torch.tensor(scores).to(self.device, self.dtype).flatten())
        self.truth.append(torch.tensor(labels).to(self.device).flatten())
        self.index.append(rows.to(self.device, torch.int64))

    def compute(self) -> PrecisionResult:
        """`map` and `per_class`, equal on every process."""
        index = dim_zero_cat(self.index).cpu().numpy() if len(self.index) else np.zeros(0, np.int64)
        if not len(index):
            raise UserError("there are no items; call update before compute")
        scores = dim_zero_cat(self.logits).cpu().view(len(index), -1)
        labels = dim_zero_cat(self.truth).cpu().view(len(index), -1)
        _, first = np.unique(index, return_index=True)
        keep = np.concatenate([np.flatnonzero(index < 0), first[index[first] >= 0]])
        values = average_precision(scores[keep], labels[keep])
        return {"map": float(values.mean()), "per_class": values}

    def reset(self) -> None:
        """Forget all items."""
        super().reset()
        self._classes = None

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Gather the items of all processes; a process without items adds empty tensors."""
        for name, dtype in (("logits", self.dtype), ("truth", torch.int8), ("index", torch.int64)):
            if isinstance(getattr(self, name), list) and not getattr(self, name):
                setattr(self, name, [torch.empty(0, dtype=dtype, device=self.device)])
        super().sync(*args, **kwargs)
