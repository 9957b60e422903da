"""Logits of all items of a feed, and the figure that chooses the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from spml import metrics
from spml.data.images.loader import Feed, Rows
from spml.runs.settings import Selection
from spml.train.device import Processes

Logits = npt.NDArray[np.float32]
ALONE = Processes()


def predict_logits(
    model: nn.Module,
    feed: Feed,
    batch_size: int,
    device: torch.device | str = "cpu",
    advance: Callable[[int], None] | None = None,
) -> Logits:
    """Logits (items, classes) in the table's order; `advance` is told how many items were done."""
    parts: list[Tensor] = []
    for logits, rows in score_batches(model, feed, batch_size, device):
        parts.append(logits)
        if advance is not None:
            advance(len(rows))
    return torch.cat(parts).cpu().numpy()


def score_batches(
    model: nn.Module,
    feed: Feed,
    batch_size: int,
    device: torch.device | str,
    processes: Processes = ALONE,
) -> Iterator[tuple[Tensor, Rows]]:
    """float32 logits and rows of all items in the table's order, in evaluation mode and without gradient.

    Every process scores its share of a batch and is given the whole; each item counts once.
    """
    was_training = model.training
    model.eval()
    order = np.split(np.arange(len(feed)), range(batch_size, len(feed), batch_size))
    try:
        for (x, _), rows in zip(feed.batches(map(processes.share, order)), order, strict=True):
            with torch.inference_mode():
                logits = model(x.to(device, non_blocking=True)).float()
                whole = processes.whole(logits, len(rows))
            yield whole, rows
    finally:
        model.train(was_training)


def score(logits: Logits, labels: npt.NDArray[np.int8], selection: Selection) -> float:
    """The validation figure in percent: mAP on complete labels, or its estimate from observed ones alone."""
    measure = metrics.mean_average_precision if selection == "complete" else metrics.estimated_map
    return 100 * float(measure(logits, labels))
