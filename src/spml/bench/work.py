"""Those who do the runs: one process, or several side by side, here or on other machines."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from spml.bench.plan import Plan, Record, Run, benchmark, distinct
from spml.bench.shelf import Shelf
from spml.errors import DataError, UserError
from spml.metrics.bootstrap import RESAMPLES

PAUSE = 1.0  # seconds until it is looked again whether others have finished
GRACE = 120.0  # seconds in which a worker that is asked to stop may save
REFUSED = 2  # how a worker ends that would only fail again

Told = Callable[[str], None]


@dataclass
class Work:
    """All that a worker needs, as it is sent to its process.

    Attributes:
        plans: tables to fill, in this order.
        shelf: where runs are made and recorded.
        sources: of each data set's name, the arguments of `spml.data.load`.
        running: settings that change no result, such as where pictures are cached.
        weights: a file for each backbone whose weights are read from one; runs whose backbone is in `wanting`, and
            not here, are left to others.
        wanting: backbones that take their weights from such a file.
        about: more to keep in the runs' config.json.
        resamples: of the test images, by which runs are compared.
        deadline: time (of the epoch) after which no run is begun.
        threads: of each worker on the CPU; None leaves it to torch.
    """

    plans: Sequence[Plan]
    shelf: Shelf
    sources: Mapping[str, Mapping[str, Any]]
    running: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    wanting: frozenset[str] = frozenset()
    about: Mapping[str, Any] = field(default_factory=dict)
    resamples: int = RESAMPLES
    deadline: float | None = None
    threads: int | None = None

    def runs(self) -> list[Run]:
        """All runs that are known to be needed, each once."""
        return distinct([run for plan in self.plans for run in plan.runs(self.shelf.outcome)])

    def growing(self) -> bool:
        """Whether results that are not yet there will ask for more runs."""
        return any(plan.growing(self.shelf.outcome) for plan in self.plans)

    def possible(self, run: Run) -> bool:
        """Whether the run's data and weights are here."""
        backbone = run.settings.get("backbone")
        random = run.settings.get("weights") == "none"
        return run.data in self.sources and (
            random or backbone not in self.wanting or backbone in self.weights
        )


def work(job: Work, experiments: dict[str, Any] | None = None, after: Told | None = None) -> int:
    """Do runs until none is left; how many were done. An interruption leaves the run in hand to be gone on with.

    Data that cannot be read are an error of the whole: no run is recorded as failed for them. Nor is a run that another
    process still trains, though it was silent for so long that its lock could be had: that process will record it.

    Args:
        job: what is to be done.
        experiments: data that are loaded already, by name.
        after: told each run's id when it is recorded.
    """
    loaded = {} if experiments is None else experiments
    done, last = 0, 0.0
    others: set[str] = set()
    while job.deadline is None or time.time() + last < job.deadline:
        runs = [run for run in job.runs() if job.possible(run) and run.id not in others]
        _load(runs, job, loaded)
        taken = job.shelf.take(runs)
        if taken is None:
            if not (job.growing() and any(job.shelf.state(run.id) == "running" for run in runs)):
                break
            time.sleep(PAUSE)
            continue
        run, lock = taken
        began = time.time()
        with lock.held():
            record = _do(run, job, loaded)
            if record is None:
                others.add(run.id)
                continue
            job.shelf.write(run, record)
        done, last = done + 1, time.time() - began
        if after is not None:
            after(run.id)
        if "error" in record and _device_is_lost():
            raise RuntimeError(f"the device is lost since {run.id}: {record['error']}")
    return done


def _load(runs: Sequence[Run], job: Work, loaded: dict[str, Any]) -> None:
    from spml.data import load

    for name in {run.data for run in runs if job.shelf.outcome(run.id) is None} - set(loaded):
        loaded[name] = load(**job.sources[name])


def _do(run: Run, job: Work, loaded: dict[str, Any]) -> Record | None:
    """Train, and give what is to be recorded: what came of it, or why nothing did; None where another trains it."""
    from spml.bench.record import condensed
    from spml.runs.folder import TakenError
    from spml.train import Settings, fit

    try:
        known = {item.name for item in fields(Settings)}
        given = {
            name: value for name, value in {**run.settings, **job.running}.items() if name in known
        }
        if (file := job.weights.get(str(given.get("backbone")))) and given.get("weights") != "none":
            given["weights"] = file
        settings = Settings(**{**given, "method": run.method, "seed": run.seed})
        folder = job.shelf.run_folder(run.id)
        about = {**job.about, **_named(run)}
        shared = _shared_cache(run.data, settings, loaded)
        fit(
            loaded[run.data],
            settings,
            folder,
            options=run.options,
            resume=True,
            quiet=True,
            extra_config=about,
            cache=shared,
        )
        return condensed(folder, job.resamples)
    except TakenError:
        return None
    except DataError:  # of all runs alike
        raise
    except UserError as error:
        return {"error": " ".join(str(error).split())}
    except Exception as error:  # whatever goes wrong in one run, the others are to be done
        where = [
            f"{Path(at.filename).name}:{at.lineno} {at.name}"
            for at in traceback.extract_tb(error.__traceback__)
        ]
        return {"error": " ".join(f"{type(error).__name__}: {error}".split()), "where": where}
    finally:
        gc.collect()


def _shared_cache(data: str, settings: Any, loaded: dict[str, Any]) -> Any:
    """Pictures on the device, for all runs of this process on the same data; None where there is nothing to share."""
    import torch

    from spml.data.images.cache import open_cache
    from spml.train.resolve import resolve

    if (
        not torch.cuda.is_available()
        or settings.cache is not None
        or settings.accelerator not in ("auto", "cuda")
    ):
        return None
    experiment = loaded[data]
    size = resolve(settings, experiment).size
    if f"{data} {size}" not in loaded:
        tables = [table for table in (experiment.observed, experiment.test) if table is not None]
        loaded[f"{data} {size}"] = open_cache(
            tables, size, "device", folder=settings.cache_dir, device="cuda"
        )
    return loaded[f"{data} {size}"]


def _named(run: Run) -> dict[str, Any]:
    """What config.json says of the data, where there are several versions of them."""
    name = benchmark(run.data)
    return {} if name == run.data else {"pixels": run.data[len(name) + 1 :]}


def _device_is_lost() -> bool:
    """Whether nothing more can be computed in this process, so that another has to do the rest."""
    import torch

    if not torch.cuda.is_available():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


class Workers:
    """Processes that do runs side by side; one that dies while there is work is replaced."""

    def __init__(self, job: Work, count: int) -> None:
        self.job, self.count = job, count
        self.context = multiprocessing.get_context("spawn")
        self.processes = [self._start() for _ in range(count)]
        self.replaced = 0

    def _start(self) -> Any:
        process = self.context.Process(target=_worker, args=(self.job,), daemon=False)
        process.start()
        return process

    def alive(self) -> bool:
        """Whether any is at work."""
        for place, process in enumerate(self.processes):
            if process.exitcode not in (None, 0, REFUSED) and self.replaced < 2 * self.count:
                self.replaced += 1
                self.processes[place] = self._start()
        return any(process.is_alive() for process in self.processes)

    def check(self) -> None:
        """Raise where workers ended by an error, or without a word, and left runs that nobody makes."""
        codes = {process.exitcode for process in self.processes} - {None, 0}
        if not codes or all(self.job.shelf.state(run.id) != "pending" for run in self.job.runs()):
            return
        if codes == {REFUSED}:
            raise SystemExit(REFUSED)  # they have said why
        ended = ", ".join(str(code) for code in sorted(codes - {REFUSED}))
        raise UserError(
            f"workers ended with exit code {ended} and left runs open; --jobs 1 makes these, or shows why not"
        )

    def stop(self) -> None:
        """Ask all to stop, and wait while they save what they have."""
        for process in self.processes:
            process.terminate()
        end = time.time() + GRACE
        for process in self.processes:
            process.join(max(0.0, end - time.time()))
            if process.is_alive():
                process.kill()


def _worker(job: Work) -> None:
    """A process of its own: out of reach of the terminal's Ctrl-C, stopped by the process that started it."""
    from spml.train.supervisor import follow

    if hasattr(os, "setpgrp"):
        os.setpgrp()
    signal.signal(signal.SIGTERM, _interrupt)
    follow(os.getppid())
    if job.threads is not None:
        import torch

        torch.set_num_threads(job.threads)
    try:
        work(job)
    except KeyboardInterrupt:
        os._exit(0)  # decoding threads must not hold it up
    except UserError as error:
        print(f"spml: {error}", file=sys.stderr, flush=True)
        os._exit(REFUSED)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
