"""What watches over a run: losses that are not finite, and the user's wish to stop."""

from __future__ import annotations

import signal
import threading
from collections import deque
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spml.data.feed import Rows
from spml.errors import UserError

WAITING = 8  # steps whose loss may be on its way from the device
ADVICE = "try a lower --lr, --precision 32-true, or --on-nan skip to leave such batches out"


class Guard:
    """Ends the run at a loss that is NaN or infinite, without waiting for the device in any step.

    On a GPU, loss and range of logits are copied away while training goes on, and read once they have come.
    """

    def __init__(self) -> None:
        self.on_their_way: deque[tuple[Any, Tensor, Rows, str]] = deque()

    def watch(self, loss: Tensor, logits: Tensor, rows: Rows, where: str) -> None:
        """A step's loss and logits; `where` says which step it was."""
        seen = torch.stack([loss.detach().float(), *(end.float() for end in logits.detach().aminmax())])
        if not seen.is_cuda:
            self._judge(seen, rows, where)
            return
        copied = torch.empty(3, pin_memory=True)
        copied.copy_(seen, non_blocking=True)
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self.on_their_way.append((event, copied, rows, where))
        while self.on_their_way and (len(self.on_their_way) > WAITING or self.on_their_way[0][0].query()):
            self._next()

    def finish(self) -> None:
        """Judge all that is still on its way."""
        while self.on_their_way:
            self._next()

    def _next(self) -> None:
        event, copied, rows, where = self.on_their_way.popleft()
        event.synchronize()
        self._judge(copied, rows, where)

    @staticmethod
    def _judge(seen: Tensor, rows: Rows, where: str) -> None:
        loss, low, high = seen.tolist()
        if np.isfinite(loss):
            return
        items = ", ".join(map(str, rows[:16].tolist())) + (", ..." if len(rows) > 16 else "")
        raise UserError(
            f"loss is {loss} in {where}: logits from {low:g} to {high:g}, rows {items} of the training split; {ADVICE}"
        )


class Stop:
    """Notes a first Ctrl-C or SIGTERM, so that the run can save before it ends; a second one interrupts at once."""

    def __init__(self) -> None:
        self.asked = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
