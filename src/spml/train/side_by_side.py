"""Train the candidates of a race one after the other, or side by side on several devices."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spml.data import Experiment
from spml.data.images.cache import Cache
from spml.runs.settings import Settings
from spml.train import fitting
from spml.train.supervisor import follow

Rows = npt.NDArray[np.int64]
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Job:
    """One training of a candidate.

    Attributes:
        settings: its method, and how long it trains; it has one device.
        options: of the method.
        path: its run folder.
        train_rows: to train on.
        val_rows: to score.
        validated_from: first epoch that is scored.
    """

    settings: Settings
    options: dict[str, Any]
    path: Path
    train_rows: Rows
    val_rows: Rows
    validated_from: int


Train = Callable[[Sequence[Job]], Iterator[None]]


@contextmanager
def trainer(
    experiment: Experiment, devices: int, cache: Cache | None, extra_config: Mapping[str, Any]
) -> Iterator[Train]:
    """Yield a function that trains jobs, and yields after each in their order.

    With several devices each has a process, which ends with this one. Results are those of a race
    on one device.
    """
    if devices == 1:

        def in_turn(jobs: Sequence[Job]) -> Iterator[None]:
            for job in jobs:
                _train(job, experiment, cache, extra_config)
                yield

        yield in_turn
        return

    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        arguments = experiment, dict(extra_config), torch.get_num_threads()
        workers = [
            stack.enter_context(ProcessPoolExecutor(1, context, _start, (rank, *arguments)))
            for rank in range(devices)
        ]

        def in_processes(jobs: Sequence[Job]) -> Iterator[None]:
            futures = [
                workers[number % devices].submit(_train_in_worker, job)
                for number, job in enumerate(jobs)
            ]
            for future in futures:
                yield future.result()

        yield in_processes


def _train(
    job: Job, experiment: Experiment, cache: Cache | None, extra_config: Mapping[str, Any]
) -> None:
    fitting.fit(
        replace(experiment, train_rows=job.train_rows, val_rows=job.val_rows),
        job.settings,
        job.path,
        options=job.options,
        resume=True,
        accept_changed_data=True,  # the race has compared the data
        quiet=True,
        extra_config=extra_config,
        cache=cache,
        validated_from=job.validated_from,
        tested=False,
    )


_data: tuple[Experiment, dict[str, Any]]  # of a worker process


def _start(rank: int, experiment: Experiment, extra_config: dict[str, Any], threads: int) -> None:
    """Prepare a worker process: it ends with its parent and sees one device."""
    global _data
    follow(os.getppid())
    listed = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = listed.split(",")[rank] if listed else str(rank)
    torch.set_num_threads(threads)  # sums depend on their number
    _data = experiment, extra_config


def _train_in_worker(job: Job) -> None:
    experiment, extra_config = _data
    _train(job, experiment, None, extra_config)
