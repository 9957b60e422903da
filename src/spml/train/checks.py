"""What is tried before anything is decoded or written: the size, the options, the needs, the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from spml import losses
from spml.data.images.cache import MEMORY_SHARE
from spml.data.images.store import format_bytes, free_memory
from spml.errors import UserError
from spml.model import Classifier

WORTH_TELLING = 2**30  # bytes


def try_model(
    model: Classifier, method: losses.Method, example: Tensor, name: str, backbone: str
) -> None:
    """Refuse a size that the backbone cannot take, and features that the method cannot use.

    Args:
        model: to be trained.
        method: is shown the features of the example where it needs features.
        example: one item as it is stored, (1, ...).
        name: of the method.
        backbone: its name.
    """
    if "views" in method.needs and example.ndim != 4:
        raise UserError(
            f"{name} needs views: two looks at each picture, which feature vectors do not have"
        )
    try:
        with torch.inference_mode():
            features = model.eval().features(example)
    except (AssertionError, RuntimeError) as error:
        size = example.shape[-1]
        raise UserError(
            f"{backbone} cannot take pictures of {size} px ({_short(error)}); give another --size"
        ) from error
    with torch.inference_mode():
        _, shown = model.detailed(features)
    if "features" in method.needs:
        try:
            method.prepare(shown.float().clone())
        except ValueError as error:
            raise UserError(str(error)) from error


def try_alone(model: Classifier, example: Tensor, backbone: str) -> None:
    """Refuse batches of one item where batch norm has one value of it, and so no statistics; the model stays as it is.

    Args:
        model: to be trained.
        example: one item as it is stored, (1, ...).
        backbone: its name.
    """
    kept = [buffer.clone() for buffer in model.buffers()]
    try:
        with torch.inference_mode():
            model.train().features(example)
    except ValueError as error:
        raise UserError(
            f"batch norm of {backbone} cannot learn from one picture of {example.shape[-1]} px, and the last batch, or "
            "a process's share of it, has one; give another --batch-size, a larger --size, or --frozen-norm"
        ) from error
    finally:
        for buffer, value in zip(model.eval().buffers(), kept, strict=True):
            buffer.copy_(value)


def try_method(method: losses.Method, name: str, classes: int, epochs: int) -> None:
    """Refuse options that do not fit the data, or a method that gives no single number, before training."""
    ours, none = (
        name in losses.names(),
        f"{name} gives no single number to minimise; a loss is reduced over its batch",
    )
    if ours and getattr(method, "reduction", None) == "none":
        raise UserError(none)
    if (method.needs and not ours) or method.needs & {"features", "views"}:
        return  # a trial would be remembered, or there is nothing to show yet
    zeros, rows = torch.zeros(2, classes), torch.zeros(2, dtype=torch.int64)
    method.train(not ours)  # in evaluation mode ours remember nothing
    try:
        value = method(zeros, zeros.to(torch.int8), epoch=1, epochs=epochs, index=rows)
    except (RuntimeError, TypeError, IndexError) as error:
        raise UserError(
            f"{name} cannot be used with these options on {classes} classes ({_short(error)})"
        ) from error
    finally:
        method.train()
    if not isinstance(value, Tensor) or value.ndim:
        raise UserError(none)


def memory_note(name: str, items: int, classes: int, options: Mapping[str, Any]) -> str | None:
    """A line on what the method will keep for its items, where that is much; what does not fit is refused."""
    size = losses.memory(name, items, classes, **options)
    free = free_memory(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    told = f"{name} keeps {format_bytes(size)} for {items:,} items of {classes:,} classes"
    if free is not None and size > MEMORY_SHARE * free:
        raise UserError(
            f"{told}, and {format_bytes(free)} of memory are free; give other options or another --method"
        )
    return told if size >= WORTH_TELLING else None


def warmup_note(
    method: losses.Method, name: str, options: Mapping[str, Any], epochs: int
) -> str | None:
    """A line where training is over before a method of ours has begun with what is its own.

    Args:
        method: made with the options.
        name: its name.
        options: among them `warmup`, where it has such.
        epochs: of the run, or of training the head alone where those are more.
    """
    warmup = options.get("warmup")
    if name not in losses.names() or not isinstance(warmup, int) or warmup < epochs:
        return None
    if not method.needs & {"pass", "features"}:
        return None  # a form of it that does not warm up
    told = f"{name} does no more than warm up in {epochs} epoch{'s' * (epochs > 1)}, since its warmup is {warmup}"
    return f"{told}; give more --epochs or a lower --set warmup"


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:150]
