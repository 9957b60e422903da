"""Files that are written while training goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map


class Writer:
    """Does one thing after the other, in the order given: at once, or in a thread of its own.

    Args:
        beside: in a thread, so that training need not wait for the disk. What is to be written is then to be a copy.
    """

    def __init__(self, beside: bool) -> None:
        self.beside = beside
        self._thread = ThreadPoolExecutor(1) if beside else None
        self._waiting: list[Future[object]] = []
        self._failed = False

    def copy(self, state: Any) -> Any:
        """What is written stays as it is now, whatever training does next."""
        return tree_map(_copied, state) if self.beside else state

    def do(self, work: Callable[..., object], *given: Any) -> None:
        """Call it; what an earlier call of the thread has raised is raised here."""
        if self._thread is None:
            work(*given)
            return
        for earlier in [future for future in self._waiting if future.done()]:
            self._waiting.remove(earlier)
            earlier.result()
        self._waiting.append(self._thread.submit(self._work, work, *given))

    def _work(self, work: Callable[..., object], *given: Any) -> None:
        """In the thread: after a failure nothing more is written, for what follows builds on what went before."""
        if self._failed:
            return
        try:
            work(*given)
        except BaseException:
            self._failed = True
            raise

    def wait(self) -> None:
        """Until all is written."""
        while self._waiting:
            self._waiting.pop(0).result()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True)  # what was begun is finished, whatever ended the run
        if error is None:
            self.wait()


def _copied(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value
