"""Supervise the processes of a run: all end together, and only one reports an error."""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

import torch.distributed as dist

from spml.errors import UserError
from spml.machine import launched
from spml.runs.settings import Resolved
from spml.train.device import Processes

Workers: TypeAlias = "Sequence[subprocess.Popen[bytes]]"

PARENT = "SPML_PARENT"  # environment variable: the process that started this one
TICK = 0.5  # seconds between two looks at the other processes
GRACE = 5.0  # seconds that other processes have to end by themselves
INTERRUPTED = (130, -signal.SIGINT)  # exit codes of a process ended by Ctrl-C


@contextmanager
def starting(fabric: Any, settings: Resolved) -> Iterator[Workers]:
    """Start the workers of this machine, yield them, and watch until all are connected.

    A worker ends with rank 0, and rank 0 with a failed worker: a collective would wait for the
    missing process for ever. Processes started by torchrun or SLURM are ended by them.
    """
    parent, over = os.environ.pop(PARENT, None), threading.Event()
    worker = parent is not None and "LOCAL_RANK" in os.environ and launched() is None
    if parent is not None and worker:
        follow(int(parent))
    os.environ[PARENT] = str(os.getpid())
    try:
        workers = _start(fabric.strategy.cluster_environment, settings)
        _in_background(_watch, workers, over, 0.0, lambda: None)
        yield workers
    except Exception:
        if worker:
            time.sleep(GRACE)  # if rank 0 has ended, this process ends now without a message
        raise
    finally:
        over.set()
        del os.environ[PARENT]  # other processes that this one starts are not part of the run


def _start(environment: Any, settings: Resolved) -> Workers:
    """Run this command again for each further device, unless a launcher has started all processes.

    Lightning starts no processes if LOCAL_RANK is set. Those it starts itself, it kills together
    without a message.
    """
    if environment.creates_processes_externally:
        return []
    os.environ["MASTER_ADDR"] = environment.main_address
    os.environ["MASTER_PORT"] = str(environment.main_port)
    os.environ["NODE_RANK"] = str(environment.node_rank())
    os.environ["WORLD_SIZE"] = str(settings.devices * settings.nodes)
    os.environ["LOCAL_RANK"] = "0"
    command = [sys.executable, *sys.orig_argv[1:]]
    return [
        subprocess.Popen(command, env={**os.environ, "LOCAL_RANK": str(rank)})
        for rank in range(1, settings.devices)
    ]


def follow(parent: int) -> None:
    """End this process as soon as its parent has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(TICK)
        os._exit(1)

    _in_background(watch)


def _in_background(function: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()


def _watch(
    workers: Workers, over: threading.Event, grace: float, abandon: Callable[[], object]
) -> None:
    """End this process after a worker has failed, unless it ends by itself in the grace time.

    The main thread may wait for the worker for ever, in a call that handles no signals.
    """
    while not over.wait(TICK):
        failure = _failure(workers)
        if failure is None or over.wait(grace):
            continue
        abandon()
        interrupted = any(worker.poll() in INTERRUPTED for worker in workers)
        message = "\nspml: interrupted" if interrupted else f"spml: {failure}"
        print(message, file=sys.stderr, flush=True)
        os._exit(130 if interrupted else 2)


def _failure(workers: Workers) -> str | None:
    """Describe how the first failed worker ended; None if none failed."""
    for number, worker in enumerate(workers, start=2):
        if worker.poll():
            code = worker.returncode
            how = f"ended with exit code {code}"
            if code < 0:
                how = f"was killed ({signal.Signals(-code).name})"
            return f"process {number} of {len(workers) + 1} {how}; resume the run with --resume"
    return None


def _leave() -> None:
    """Leave the process group before Python exits: its threads may abort the process."""
    if dist.is_initialized():
        dist.destroy_process_group()


class Supervisor:
    """Context in which the processes of a run end together.

    Workers delay their error: if rank 0 fails with the same one, only rank 0 reports it and then
    stops the workers it started.
    """

    def __init__(
        self, processes: Processes, workers: Workers, abandon: Callable[[], object]
    ) -> None:
        self.processes, self.workers, self.abandon = processes, workers, abandon
        self._over = threading.Event()

    def __enter__(self) -> Self:
        _in_background(_watch, self.workers, self._over, GRACE, self.abandon)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._over.set()
        if error is None:
            atexit.register(_leave)
        if not isinstance(error, Exception):
            return
        if not self.processes.first:
            time.sleep(GRACE)
        if self.workers:
            time.sleep(TICK)  # until a failed worker, whose end may be the error, has an exit code
        failure = _failure(self.workers)
        if failure is not None:
            raise UserError(failure) from error
        if isinstance(error, dist.DistError):
            raise UserError(
                "the connection to another process of the run was lost, and its own output says "
                "why; resume the run with --resume"
            ) from error
