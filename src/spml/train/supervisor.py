"""The processes of a run end together: none waits for ever for one that has ended, and an error is told once."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from spml.errors import UserError
from spml.machine import launched
from spml.train.processes import Processes

PARENT = "SPML_PARENT"  # variable of the environment: the process that has started this one
TICK = 0.5  # seconds between two looks at the others
GRACE = 5.0  # seconds in which the others may end of themselves
INTERRUPTED = (130, -signal.SIGINT)  # exit codes of a process that Ctrl-C has ended
LOST = (
    "closed by peer",
    "onnection reset",
    "onnection refused",
    "roken pipe",
    "remote process exited",
)


@contextmanager
def following(fabric: Any) -> Iterator[None]:
    """A block in which a process starts others, or is one of them, which then ends as soon as the first has.

    A collective would wait for that one for ever. The first ends too where one that it has started does not come. Who
    is started by torchrun or SLURM is ended by them.
    """
    parent, over = os.environ.pop(PARENT, None), threading.Event()
    started = parent is not None and "LOCAL_RANK" in os.environ and launched() is None
    if parent is not None and started:
        follow(int(parent))
    os.environ[PARENT] = str(os.getpid())
    threading.Thread(
        target=_watch_start, args=(fabric, over), daemon=True, name="watch-start"
    ).start()
    try:
        yield
    except Exception:
        if started:
            time.sleep(GRACE)  # the first may have ended, which is the end of this one
        raise
    finally:
        over.set()
        del os.environ[PARENT]  # what else this process starts is no part of the run


def follow(parent: int) -> None:
    """End this process as soon as that one, which is its parent, has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(TICK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="follow-parent").start()


def _watch_start(fabric: Any, over: threading.Event) -> None:
    """End this process where one that it has started ends before all have met; it waits where no signal is heard."""
    while not over.wait(TICK):
        children = _children(fabric)
        told = _dead(children, len(children) + 1)
        if told is None or over.is_set():
            continue
        stopped = any(child.poll() in INTERRUPTED for child in children)
        print("\nspml: interrupted" if stopped else f"spml: {told}", file=sys.stderr, flush=True)
        os._exit(130 if stopped else 2)


def _children(fabric: Any) -> list[Any]:
    """The processes that this one has started; Lightning's observer of them, which kills all without a word, is off."""
    children: list[Any] = list(getattr(fabric.strategy.launcher, "procs", ()))
    for thread in threading.enumerate() if children else ():
        if thread.name == "child-process-observer":
            observer: Any = thread
            observer._child_processes = []
    return children


def _dead(children: Sequence[Any], count: int) -> str | None:
    """Which process ended ill, of so many, and how."""
    for number, child in enumerate(children, start=1):
        if child.poll():
            code = child.returncode
            how = (
                f"was killed ({signal.Signals(-code).name})"
                if code < 0
                else f"ended with exit code {code}"
            )
            return f"process {number + 1} of {count} {how}; go on with --resume from what is saved"
    return None


def _leave() -> None:
    """Leave the group of processes before Python ends, where all went well: threads that are left then may abort it."""
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


class Together:
    """A block that the processes of a run are in together. Where one of them ends, so do the others.

    The first tells why; another one waits a little with an error, which may be that of all and is then told by the
    first, whose end is the end of those that it has started.

    Args:
        processes: of the run.
        fabric: of Lightning; knows the processes that this one has started.
        abandon: called before this process is ended from without.
    """

    def __init__(self, processes: Processes, fabric: Any, abandon: Callable[[], object]) -> None:
        self.processes, self.abandon = processes, abandon
        self.children = _children(fabric)
        self._over = threading.Event()

    def __enter__(self) -> Together:
        if self.children:
            threading.Thread(target=self._watch, daemon=True, name="watch-children").start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if error is None and self.processes.count > 1:
            atexit.register(_leave)
        if self.processes.count == 1 or not isinstance(error, Exception):
            return
        if not self.processes.first:
            time.sleep(GRACE)
        lost = isinstance(error, RuntimeError) and any(sign in str(error) for sign in LOST)
        if self.children and lost:
            time.sleep(TICK)  # until it is known which
        if (told := _dead(self.children, self.processes.count)) is not None:
            raise UserError(told) from error
        if lost:
            raise UserError(
                "another process of the run has ended; its own error says why"
            ) from error

    def _watch(self) -> None:
        """End this process some time after a child, where it does not itself: it may wait for the child for ever."""
        while not self._over.wait(TICK):
            told = _dead(self.children, self.processes.count)
            if told is not None and not self._over.wait(GRACE):
                self.abandon()
                print(f"spml: {told}", file=sys.stderr, flush=True)
                os._exit(2)
