"""What watches over a run: losses that are not finite, and the user's wish to stop."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spml.data.images.loader import Rows
from spml.errors import UserError

NO_ROOM = (
    "out of memory",
    "can't allocate memory",
    "ALLOC_FAILED",
)  # of a GPU, of the machine, of a GPU's library
WAITING = 8  # steps whose loss may be on its way from the device
ADVICE = "try a lower --lr, --precision 32-true, or --on-nan skip to leave such batches out"


class Guard:
    """Ends the run at a loss that is NaN or infinite, without waiting for the device in any step.

    On a GPU, loss and range of logits are copied away while training goes on, and read once they have come.

    Args:
        model: that is trained; a checkpoint of weights that are not finite would be of no use.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.where = model, "the beginning"
        self.loss: float | None = None  # the last that has come
        self.on_their_way: deque[tuple[Any, Tensor, Rows, str]] = deque()

    def watch(self, loss: Tensor, logits: Tensor, rows: Rows, where: str) -> None:
        """A step's loss and logits; `where` says which step it was."""
        self.where = where
        seen = torch.stack(
            [loss.detach().float(), *(end.float() for end in logits.detach().aminmax())]
        )
        if not seen.is_cuda:
            self._judge(seen, rows, where)
            return
        copied = torch.empty(3, pin_memory=True)
        copied.copy_(seen, non_blocking=True)
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self.on_their_way.append((event, copied, rows, where))
        while self.on_their_way and (
            len(self.on_their_way) > WAITING or self.on_their_way[0][0].query()
        ):
            self._next()

    def finish(self) -> None:
        """Judge all that is still on its way, and the weights that it has led to."""
        while self.on_their_way:
            self._next()
        if not all_finite(
            value for value in self.model.state_dict().values() if value.is_floating_point()
        ):
            raise UserError(
                f"weights are not finite after {self.where}, though its loss was; {ADVICE}"
            )

    def _next(self) -> None:
        event, copied, rows, where = self.on_their_way.popleft()
        event.synchronize()
        self._judge(copied, rows, where)

    def _judge(self, seen: Tensor, rows: Rows, where: str) -> None:
        loss, low, high = seen.tolist()
        if np.isfinite(loss):
            self.loss = loss
            return
        items = ", ".join(map(str, rows[:16].tolist())) + (", ..." if len(rows) > 16 else "")
        raise UserError(
            f"loss is {loss} in {where}: logits from {low:g} to {high:g}, rows {items} of the training split; {ADVICE}"
        )


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no value is NaN or infinite; waits for the device once."""
    finite = [tensor.isfinite().all() for tensor in tensors]
    return not finite or bool(torch.stack(finite).all())


def finite_gradients(optimizers: Iterable[Any], precision: Any) -> bool:
    """Whether a step of these would leave all parameters finite; in float16 Fabric's own steps see to that."""
    if precision == "16-mixed":
        return True
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    gradients = [parameter.grad for group in groups for parameter in group["params"]]
    return all_finite(gradient for gradient in gradients if gradient is not None)


def out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the machine, had no room for a batch."""
    said = str(error) if isinstance(error, RuntimeError) else ""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(
        sign in said for sign in NO_ROOM
    )


class Stop:
    """Notes a first Ctrl-C or SIGTERM, so that the run can save before it ends; a second one interrupts at once.

    The loss of the terminal is such a wish too. A signal that the program was started to ignore stays ignored.
    """

    def __init__(self) -> None:
        self.asked = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                    self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
