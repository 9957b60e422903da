"""The state of a run: progress, learned values and random numbers, saved and restored."""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from spml.errors import UserError
from spml.keyed import key
from spml.losses import Method
from spml.machine import out_of_memory
from spml.model import Classifier, load_model
from spml.runs.folder import RunFolder
from spml.runs.settings import Resolved
from spml.train.device import Processes


class WeightAverage:
    """The exponential average of a model's parameters and floating-point buffers.

    After step t the decay is min(decay, (1 + t) / (10 + t)), so that the initial weights are
    forgotten within a few steps. Nothing here waits for the device.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        named = model.state_dict().items()
        self.live = {name: value for name, value in named if value.is_floating_point()}
        self.average = {name: value.clone() for name, value in self.live.items()}

    def restart(self) -> None:
        """Forget the past: the average becomes the current weights."""
        self.steps = 0
        torch._foreach_copy_([*self.average.values()], [*self.live.values()])

    def update(self) -> None:
        """Include the weights after a training step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_([*self.average.values()], [*self.live.values()], 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights, in place, until the end of the block."""
        live, average = [*self.live.values()], [*self.average.values()]
        own = [value.clone() for value in live]
        torch._foreach_copy_(live, average)
        try:
            yield
        finally:
            torch._foreach_copy_(live, own)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds of the average."""
        return {"steps": self.steps, "average": self.average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        average: dict[str, Tensor] = state["average"]
        self.steps = int(state["steps"])
        for name, value in self.average.items():
            value.copy_(average[name])


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
    """How far a run has come."""

    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)  # epoch and validation figure
    within: dict[str, Any] = field(default_factory=dict)  # of the current epoch; empty in between
    spent: dict[str, Any] = field(
        default_factory=lambda: {"train_images": 0, "train_seconds": 0.0, "seconds": 0.0}
    )

    def has_dropped(self, drop: float) -> bool:
        """Whether the last epoch's figure is more than `drop` points below the best."""
        if not self.best or self.within or self.best["val_map"] is None:
            return False
        return bool(self.history[-1]["val_map"] < self.best["val_map"] - drop)

    def state(self, finished: int, parts: Parts, seconds: float) -> dict[str, Any]:
        """Return the content of a checkpoint."""
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


class Writer:
    """Runs tasks in order: at once, or in a background thread, so that no step waits for the disk.

    After a task has failed, no later one runs, since it may depend on that one.
    """

    def __init__(self, background: bool) -> None:
        self.background = background
        self._thread = ThreadPoolExecutor(1) if background else None
        self._last: Future[None] | None = None  # the task submitted last

    def copy(self, state: Any) -> Any:
        """Copy the tensors of a state if a background task will write it."""
        return tree_map(_copied, state) if self.background else state

    def do(self, task: Callable[..., object], *arguments: Any) -> None:
        """Run the task; raises the error of an earlier background task."""
        if self._thread is None:
            task(*arguments)
            return
        if self._last is not None and self._last.done():
            self._last.result()
        self._last = self._thread.submit(_after, self._last, task, *arguments)

    def wait(self) -> None:
        """Wait until all tasks are finished."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True)  # finish submitted tasks, whatever ended the run
        if error is None:
            self.wait()


class Checkpoints:
    """Saves a run in last.ckpt, after an epoch and within one, and restores it."""

    def __init__(
        self, run: RunFolder, parts: Parts, writer: Writer, settings: Resolved, started: float
    ) -> None:
        self.run, self.parts, self.writer, self.settings = run, parts, writer, settings
        self.started = self.saved = started
        self.sound = True  # last.ckpt is worth keeping when the next one replaces it

    @property
    def due(self) -> bool:
        """Whether the last checkpoint is old enough to save another one within an epoch."""
        return time.perf_counter() - self.saved > 60 * self.settings.checkpoint_minutes

    def save(self, progress: Progress, finished: int, *, write: bool) -> None:
        """Save `finished` epochs and the progress of the next; only rank 0 sets `write`."""
        self.saved = time.perf_counter()
        if write:
            state = progress.state(finished, self.parts, self.saved - self.started)
            self.writer.do(self.run.save_checkpoint, self.writer.copy(state), self.sound)
            self.sound = True

    def restart(
        self, progress: Progress, processes: Processes, report: Callable[[str], None]
    ) -> None:
        """Load the best model, and forget what optimisers and weight average have seen.

        The rates become those that the optimisers were built with. Nothing changes if no epoch
        could be selected yet.
        """
        if not progress.best or progress.within:  # an interrupted epoch has restarted already
            return
        self.writer.wait()
        processes.wait()  # until rank 0 has written the model
        parts = self.parts
        parts.classifier.load_state_dict(load_model(self.run.best)[0].state_dict())
        for optimizer in parts.optimizers:
            state = optimizer.state_dict()
            for group in state["param_groups"]:
                group["lr"] = group.pop("full_lr", group["lr"])
            optimizer.load_state_dict({**state, "state": {}})
        if parts.average is not None:
            parts.average.restart()
        report(f"next stage from epoch {progress.best['epoch']}, the best so far")

    def restore(self, progress: Progress, report: Callable[[str], None]) -> int | None:
        """Restore a checkpoint; return the last finished epoch, or None without a checkpoint.

        `report` receives a line if last.ckpt is damaged and the one before it is restored.
        """

        def unsound(text: str) -> None:
            self.sound = False
            report(text)

        state = self.run.load_checkpoint(unsound)
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


def _after(earlier: Future[None] | None, task: Callable[..., object], *arguments: Any) -> None:
    if earlier is not None:
        earlier.result()
    task(*arguments)


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
