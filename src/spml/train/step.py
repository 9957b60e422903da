"""One optimisation step: augment a batch, compute the method's loss, and update the parameters."""

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spml import losses
from spml.data.images.loader import Rows
from spml.errors import UserError
from spml.keyed import coin
from spml.model import Classifier
from spml.model.graphs import FastForward
from spml.runs.settings import Resolved
from spml.train.device import Processes, uses_cuda

WARMUP = 0.2  # share of training over which a one-cycle rate rises
LOWEST = 1 / 25  # factor of the rate at the first step of a cycle
IN_FLIGHT = 8  # steps whose loss may still be on its way from the GPU
ADVICE = "try a lower --lr, --precision 32-true, or --on-nan skip to leave such batches out"


class Step:
    """The loss of a batch, augmented as the settings say, with the inputs the method needs."""

    def __init__(
        self, forward: FastForward, method: losses.Method, settings: Resolved, processes: Processes
    ) -> None:
        self.forward, self.method = forward, method
        self.settings, self.processes = settings, processes
        self.wants_boxes = type(method).see is not losses.Method.see
        self.logits = torch.empty(0)  # of the last batch, detached

    def prepare(self, x: Tensor) -> None:
        """Record or compile the forward pass before the first batch; `x` has a batch's shape."""
        self.forward.prepare(torch.cat([x, x]) if "views" in self.method.needs else x)

    def loss(
        self, x: Tensor, observed: Tensor, index: Tensor, rows: Rows, epoch: int
    ) -> Tensor | None:
        """Return the loss of a batch; None if the batch is skipped because a value is not finite.

        Args:
            x: this process's share of the items, as stored, on the device.
            observed: labels of the whole batch, on the device.
            index: training rows of the whole batch, on the device.
            rows: the same rows as an array.
            epoch: from 1.
        """
        views, whole = "views" in self.method.needs, self.processes.whole
        x = self.augmented(x, index, epoch)
        if views:
            from spml.train.augment import strong_view

            share = self.processes.share(rows)
            x = torch.cat([x, strong_view(x, share, self.settings.seed, epoch)])

        output = self.forward(x)
        parts = output if isinstance(output, tuple) else (output,)
        inputs: dict[str, Tensor] = {"index": index}
        if views:
            halves = [[whole(half, len(rows)) for half in part.tensor_split(2)] for part in parts]
            logits, inputs["views"] = halves[0]
            features = [torch.cat(both) for both in halves[1:]]
        else:
            logits, *features = (whole(part, len(rows)) for part in parts)
        if features:
            inputs["features"] = features[0]

        self.logits = logits.detach()
        settings = self.settings
        call = {"epoch": epoch, "epochs": settings.epochs, **inputs}
        return method_loss(self.method, logits, observed, settings.on_nan == "skip", call)

    def augmented(self, x: Tensor, index: Tensor, epoch: int) -> Tensor:
        """Return the pictures as this epoch shows them; pass the boxes to the method."""
        settings = self.settings
        if x.ndim != 4:
            return x
        if settings.crop < 1 or self.wants_boxes:
            from spml.train.augment import boxes, cut

            seen = boxes(index, settings.seed, epoch, crop=settings.crop, flip=settings.flip)
            self.method.see(seen)
            if settings.crop < 1:
                return cut(x, self.processes.share_of(seen))
        if not settings.flip:
            return x
        return mirror(x, self.processes.share_of(index), settings.seed, epoch)


def mirror(pictures: Tensor, index: Tensor, seed: int, epoch: int) -> Tensor:
    """Mirror about half of the pictures (B, 3, H, W) left to right, keyed by seed, epoch, item."""
    return torch.where(coin(index, seed, epoch).view(-1, 1, 1, 1), pictures.flip(-1), pictures)


def method_loss(
    method: losses.Method, logits: Tensor, observed: Tensor, skip: bool, call: dict[str, Any]
) -> Tensor | None:
    """Call the method; None if `skip` is set and its inputs or its loss are not finite."""
    tensors = [logits, *(value for value in call.values() if isinstance(value, Tensor))]
    if skip and not all_finite(tensors):
        return None
    loss: Tensor = method(logits, observed, **call)
    return None if skip and not all_finite([loss]) else loss


class Updater:
    """Backward pass and optimiser steps; batches that are not finite are skipped or end the run."""

    def __init__(self, fabric: Any, model: Classifier, optimizers: list[Any], skip: bool) -> None:
        self.fabric, self.model, self.optimizers, self.skip = fabric, model, optimizers, skip
        self.watch = LossWatch(model)

    def update(
        self, loss: Callable[[], tuple[Tensor | None, Tensor]], rows: Rows, where: str
    ) -> Tensor | None:
        """Take one step; return the detached loss, or None if the batch was skipped."""
        buffers = [buffer.clone() for buffer in self.model.buffers()] if self.skip else []
        value, logits = loss()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        if value is not None:
            self.fabric.backward(value)
        if value is None or (self.skip and not self._finite_gradients()):
            for buffer, former in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(former)  # drop the statistics of the skipped batch
            return None
        take_step(self.optimizers, self.fabric)
        self.watch.add(value, logits, rows, where)
        return value.detach()

    def _finite_gradients(self) -> bool:
        """Whether a step leaves all parameters finite; in float16 Fabric's scaler checks that."""
        if self.fabric.strategy.precision.precision == "16-mixed":
            return True
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        gradients = [parameter.grad for group in groups for parameter in group["params"]]
        return all_finite(gradient for gradient in gradients if gradient is not None)


class LossWatch:
    """Raise UserError for a loss that is NaN or infinite, without waiting for the device.

    On a GPU, the loss and the range of the logits are copied while training continues, and checked
    when the copy is complete.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.where = model, "the start"
        self.loss: float | None = None  # the last one known
        self.in_flight: deque[tuple[Any, Tensor, Rows, str]] = deque()

    def add(self, loss: Tensor, logits: Tensor, rows: Rows, where: str) -> None:
        """Check the loss of a step, now or when its copy is complete; `where` names the step."""
        self.where = where
        limits = (limit.float() for limit in logits.detach().aminmax())
        values = torch.stack([loss.detach().float(), *limits])
        if not values.is_cuda:
            self._check(values, rows, where)
            return
        copy = torch.empty(3, pin_memory=True)
        copy.copy_(values, non_blocking=True)
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self.in_flight.append((event, copy, rows, where))
        while self.in_flight and (len(self.in_flight) > IN_FLIGHT or self.in_flight[0][0].query()):
            self._check_next()

    def finish(self) -> None:
        """Check all losses still in flight, and then the weights."""
        while self.in_flight:
            self._check_next()
        state = self.model.state_dict().values()
        if not all_finite(value for value in state if value.is_floating_point()):
            raise UserError(
                f"weights are not finite after {self.where}, although its loss was; {ADVICE}"
            )

    def _check_next(self) -> None:
        event, copy, rows, where = self.in_flight.popleft()
        event.synchronize()
        self._check(copy, rows, where)

    def _check(self, values: Tensor, rows: Rows, where: str) -> None:
        loss, low, high = values.tolist()
        if np.isfinite(loss):
            self.loss = loss
            return
        items = ", ".join(map(str, rows[:16].tolist())) + (", ..." if len(rows) > 16 else "")
        raise UserError(
            f"loss is {loss} in {where}: logits from {low:g} to {high:g}, "
            f"rows {items} of the training split; {ADVICE}"
        )


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no value is NaN or infinite; waits for the device once."""
    finite = [tensor.isfinite().all() for tensor in tensors]
    return not finite or bool(torch.stack(finite).all())


def optimizer_for(
    model: Classifier, method: losses.Method, settings: Resolved
) -> torch.optim.Optimizer:
    """Build the optimiser of the backbone, the head and the method's own parameters."""
    head_lr = settings.lr * settings.head_lr
    backbone = [parameter for parameter in model.backbone.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": backbone, "lr": settings.lr},
        {"params": list(model.head.parameters()), "lr": head_lr},
        *method.parameter_groups(head_lr),
    ]
    return make_optimizer(groups, settings.lr, settings)


def make_optimizer(
    groups: list[dict[str, Any]], lr: float, settings: Resolved
) -> torch.optim.Optimizer:
    """Build the named optimiser over all non-empty groups; `lr` is the default rate of a group."""
    groups = [group for group in groups if group["params"]]
    common: dict[str, Any] = {"lr": lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "adamax":
        return torch.optim.Adamax(groups, **common)
    fused = uses_cuda(settings.accelerator) or None  # one kernel for all parameters
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, fused=fused, **common)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, fused=fused, **common)


def one_cycle(done: float) -> float:
    """Factor of the learning rates after this share of training."""
    if done < WARMUP:
        return LOWEST + (1 - LOWEST) * (1 - math.cos(math.pi * done / WARMUP)) / 2
    return (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP))) / 2


def set_rates(
    optimizers: list[Any], settings: Resolved, stage: tuple[int, int], epochs: float
) -> None:
    """Set the learning rates after that many epochs, as multiples of their initial values.

    The stage is that of the method: the epochs before it, and its last epoch.
    """
    if settings.schedule == "constant":
        return
    first, last = stage
    factor = one_cycle((epochs - first) / (last - first))
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = group.setdefault("full_lr", group["lr"]) * factor


def take_step(optimizers: list[Any], fabric: Any) -> None:
    """Step Fabric's optimiser, the first, and the method's own, with gradients unscaled."""
    common, *own = optimizers
    scaler = getattr(fabric.strategy.precision, "scaler", None)  # of float16 alone
    for optimizer in own:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if scaler is not None and any(parameter.grad is not None for parameter in parameters):
            scaler.step(optimizer)
        else:
            optimizer.step()
    common.step()  # last: it also updates the scale for the next step
