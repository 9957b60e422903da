"""The state of a run: progress, learned values and random numbers, saved and restored."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from spml.errors import UserError
from spml.keyed import key
from spml.losses import Method
from spml.model import Classifier
from spml.runs.folder import RunFolder
from spml.runs.settings import Resolved
from spml.train.average import WeightAverage
from spml.train.device import out_of_memory


@dataclass(frozen=True)
class Parts:
    """What training changes."""

    classifier: Classifier
    method: Method
    optimizers: list[Any]
    device: torch.device
    average: WeightAverage | None = None
    precision: Any = None  # Lightning's plugin, which in float16 adapts the scale of gradients


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        history: one record per epoch.
        best: epoch and validation figure of the best epoch so far.
        within: counters of the current epoch; empty between epochs.
        spent: images and seconds.
    """

    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    within: dict[str, Any] = field(default_factory=dict)
    spent: dict[str, Any] = field(
        default_factory=lambda: {"train_images": 0, "train_seconds": 0.0, "seconds": 0.0}
    )

    def has_dropped(self, drop: float) -> bool:
        """Whether the last epoch's figure is more than `drop` points below the best."""
        if not self.best or self.within or self.best["val_map"] is None:
            return False
        return bool(self.history[-1]["val_map"] < self.best["val_map"] - drop)

    def state(self, finished: int, parts: Parts, seconds: float) -> dict[str, Any]:
        """Return the content of a checkpoint.

        Args:
            finished: number of finished epochs.
            parts: what training has changed.
            seconds: since this process started the run.
        """
        within = {**self.within, **random_state(parts.device)} if self.within else {}
        return {
            "epoch": finished,
            "within": within,
            "model": parts.classifier.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in parts.optimizers],
            "method": parts.method.state_dict(),
            "average": {} if parts.average is None else parts.average.state_dict(),
            "precision": {} if parts.precision is None else parts.precision.state_dict(),
            "history": self.history,
            "best": self.best,
            "spent": {**self.spent, "seconds": self.spent["seconds"] + seconds},
        }

    def restore(self, state: dict[str, Any], parts: Parts, seed: int, epochs: int) -> int:
        """Restore the content of a checkpoint; return the number of finished epochs."""
        self.within = dict(state.get("within", {}))
        if self.within:
            # a method draws again what it draws at the start of an epoch; its state has the rest
            seed_all(key(seed, state["epoch"] + 1))
            parts.method.begin_epoch(state["epoch"] + 1, epochs)
            self.within["total"] = self.within["total"].to(parts.device)
            set_random_state(self.within, parts.device)
        parts.classifier.load_state_dict(state["model"])
        for optimizer, stored in zip(parts.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)
        parts.method.load_state_dict(state["method"])
        if parts.average is not None:
            parts.average.load_state_dict(state["average"])
        if state.get("precision"):
            parts.precision.load_state_dict(state["precision"])
        self.history, self.best, self.spent = state["history"], state["best"], state["spent"]
        return int(state["epoch"])


class Checkpoints:
    """Saves a run in last.ckpt, after an epoch and within one, and restores it.

    Args:
        run: the run folder.
        parts: what training changes.
        writer: writes the file.
        settings: of the run.
        started: when the run started in this process, by `time.perf_counter`.
    """

    def __init__(
        self, run: RunFolder, parts: Parts, writer: Writer, settings: Resolved, started: float
    ) -> None:
        self.run, self.parts, self.writer, self.settings = run, parts, writer, settings
        self.started = self.saved = started

    @property
    def due(self) -> bool:
        """Whether the last checkpoint is old enough to save another one within an epoch."""
        return time.perf_counter() - self.saved > 60 * self.settings.checkpoint_minutes

    def save(self, progress: Progress, finished: int, *, write: bool) -> None:
        """Save `finished` epochs and the progress of the next; only rank 0 sets `write`."""
        self.saved = time.perf_counter()
        if write:
            state = progress.state(finished, self.parts, self.saved - self.started)
            self.writer.do(self.run.save_checkpoint, self.writer.copy(state))

    def restore(self, progress: Progress) -> int | None:
        """Restore last.ckpt; return the last finished epoch, or None without a checkpoint."""
        state = self.run.load_checkpoint()
        if state is None:
            return None
        settings = self.settings
        try:
            return progress.restore(state, self.parts, settings.seed, settings.epochs)
        except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            if out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            raise UserError(
                f"{self.run.checkpoint} does not fit this run ({reason}); give --overwrite"
            ) from error


class Writer:
    """Runs tasks in order, immediately or in a background thread.

    Args:
        background: use a thread, so that training does not wait for the disk. What a task writes
            must then be a copy.
    """

    def __init__(self, background: bool) -> None:
        self.background = background
        self._thread = ThreadPoolExecutor(1) if background else None
        self._pending: list[Future[object]] = []
        self._failed = False

    def copy(self, state: Any) -> Any:
        """Copy the tensors of a state if a background task will write it."""
        return tree_map(_copied, state) if self.background else state

    def do(self, task: Callable[..., object], *arguments: Any) -> None:
        """Run the task; raises the error of an earlier background task."""
        if self._thread is None:
            task(*arguments)
            return
        for earlier in [future for future in self._pending if future.done()]:
            self._pending.remove(earlier)
            earlier.result()
        self._pending.append(self._thread.submit(self._run, task, *arguments))

    def _run(self, task: Callable[..., object], *arguments: Any) -> None:
        """Run a task in the thread, unless an earlier one failed: it may depend on that one."""
        if self._failed:
            return
        try:
            task(*arguments)
        except BaseException:
            self._failed = True
            raise

    def wait(self) -> None:
        """Wait until all tasks are finished."""
        while self._pending:
            self._pending.pop(0).result()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True)  # finish submitted tasks, whatever ended the run
        if error is None:
            self.wait()


def _copied(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value


def seed_all(number: int) -> None:
    """Seed the random numbers of Python, numpy, torch and its devices."""
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number)


@contextmanager
def preserved_random_state() -> Iterator[None]:
    """Restore the state of all random number generators at the end of the block."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of all generators, as tensors and plain values."""
    numpy_state: Any = np.random.get_state()
    name, numbers, *rest = numpy_state
    state: dict[str, Any] = {"rng": torch.get_rng_state(), "python_rng": random.getstate()}
    state["numpy_rng"] = (name, numbers.tolist(), *rest)
    if device.type != "cpu":
        state[f"{device.type}_rng"] = torch.get_device_module(device).get_rng_state()
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Move the generators' states out of `state` and restore them.

    The state may be older, or come from another device: generators it does not name stay as is.
    """
    stored = {name: state.pop(name) for name in [*state] if name.endswith("rng")}
    torch.set_rng_state(stored["rng"])
    if "python_rng" in stored:
        random.setstate(stored["python_rng"])
        np.random.set_state(stored["numpy_rng"])
    if device.type != "cpu" and f"{device.type}_rng" in stored:
        torch.get_device_module(device).set_rng_state(stored[f"{device.type}_rng"])
