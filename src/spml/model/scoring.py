"""Score batches with a model: one loop for validation, evaluation, prediction and serving."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from spml import metrics
from spml.data.images.loader import Feed, Rows

QUEUED = 2  # batches that a GPU has received before the scores of an earlier one are awaited

Logits = npt.NDArray[np.float32]
Score = Callable[[Tensor], Tensor]
Key = TypeVar("Key", bound=Sized)
Output = TypeVar("Output")


class Sharing(Protocol):
    """Several processes that each score a share of every batch."""

    def share(self, rows: Rows) -> Rows:
        """Return this process's share of a batch."""

    def whole(self, part: Tensor, length: int) -> Tensor:
        """Gather the batch of `length` items from the shares of all processes."""


def infer(function: Callable[[Tensor], Output], x: Tensor, device: torch.device | str) -> Output:
    """Call a function of a model on a batch, on the device and without gradients."""
    with torch.inference_mode():
        return function(x.to(device, non_blocking=True))


def score_stream(
    score: Score,
    batches: Iterable[tuple[Tensor, Key]],
    device: torch.device | str,
    *,
    keep_on_device: bool = False,
    processes: Sharing | None = None,
) -> Iterator[tuple[Tensor, Key]]:
    """Yield the scores of each batch with its rows or items, in order and without gradients.

    A GPU works on later batches while the scores of earlier ones are copied to the CPU and used.

    Args:
        score: maps a batch on the device to its scores, or features.
        batches: tensors with their rows or items.
        device: device of the model.
        keep_on_device: yield the scores on the device instead of the CPU.
        processes: gather the scores of all processes; `batches` then holds this process's share
            of the tensors, and the rows of the whole batch.
    """
    waiting: deque[tuple[Tensor, Key, torch.cuda.Event | None]] = deque()
    for x, key in batches:
        with torch.inference_mode():
            scores = score(x.to(device, non_blocking=True))
            if processes is not None:
                scores = processes.whole(scores, len(key))
        copied = None
        if scores.is_cuda and not keep_on_device:
            scores, copied = _copy_to_host(scores)
        waiting.append((scores, key, copied))
        if len(waiting) > (QUEUED if copied is not None else 0):
            yield _arrived(*waiting.popleft())
    while waiting:
        yield _arrived(*waiting.popleft())


def _copy_to_host(scores: Tensor) -> tuple[Tensor, torch.cuda.Event]:
    """Start a copy to pinned memory; the event marks its end."""
    host = torch.empty_like(scores, device="cpu", pin_memory=True)
    host.copy_(scores, non_blocking=True)
    # A blocking event leaves the core of the waiting thread to a decoding thread.
    copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    copied.record()
    return host, copied


def _arrived(scores: Tensor, key: Key, copied: torch.cuda.Event | None) -> tuple[Tensor, Key]:
    if copied is not None:
        copied.synchronize()
    return scores, key


def score_batches(
    model: nn.Module,
    feed: Feed,
    batch_size: int,
    device: torch.device | str,
    processes: Sharing | None = None,
) -> Iterator[tuple[Tensor, Rows]]:
    """Yield float32 logits on the device, and rows, of all items of a table in its order.

    The model scores in evaluation mode and returns to its own mode. With several processes, each
    scores its share of a batch and receives the whole batch.
    """
    was_training = model.training
    model.eval()
    order = np.split(np.arange(len(feed)), range(batch_size, len(feed), batch_size))
    shares = order if processes is None else map(processes.share, order)
    loaded = zip(feed.batches(shares), order, strict=True)
    batches = ((x, rows) for (x, _), rows in loaded)
    try:
        yield from score_stream(
            lambda x: model(x).float(), batches, device, keep_on_device=True, processes=processes
        )
    finally:
        model.train(was_training)


def predict_logits(
    model: nn.Module, feed: Feed, batch_size: int, device: torch.device | str = "cpu"
) -> Logits:
    """Return logits (items, classes) in the table's order."""
    parts = [logits for logits, _ in score_batches(model, feed, batch_size, device)]
    return torch.cat(parts).cpu().numpy()


def validation_map(logits: Logits, labels: npt.NDArray[np.int8], selection: str) -> float:
    """Return the mAP in percent on complete labels, or its estimate from observed labels."""
    measure = metrics.mean_average_precision if selection == "complete" else metrics.selection_score
    return 100 * float(measure(logits, labels))
