"""Workers that train the runs of a plan: one process or several, on one machine or many."""

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
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

from spml.bench.plan import Plan, Record, Run, SettingValues, benchmark, distinct
from spml.bench.store import RunStore
from spml.errors import DataError, UserError
from spml.metrics.bootstrap import RESAMPLES

if TYPE_CHECKING:
    from spml.data import Experiment
    from spml.data.images.cache import Cache
    from spml.runs.settings import Settings

PAUSE = 1.0  # seconds between two looks at whether other workers have finished
GRACE = 120.0  # seconds that a worker may take to save its run before it is killed
REFUSED = 2  # exit code of a worker that would fail again if it were replaced

DataLoader = Callable[[], "Experiment"]
RunDetails = Callable[[Run], Record]


@dataclass
class Job:
    """Everything a worker needs. It is pickled when a worker process starts.

    Attributes:
        sources: one function for each data set name that loads the data.
        runtime: settings that do not change results, such as the cache folder.
        weights: weight file of each backbone that reads its weights from a file.
        file_backbones: backbones that need such a file. A worker skips their runs if `weights` has
            no entry for them.
        details: returns additional entries for the config.json of a run.
        resamples: number of resamples of the test items, for comparisons.
        threads: CPU threads of each worker process; None keeps torch's default.
    """

    plans: Sequence[Plan]
    store: RunStore
    sources: Mapping[str, DataLoader]
    runtime: SettingValues = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    file_backbones: frozenset[str] = frozenset()
    details: RunDetails | None = None
    resamples: int = RESAMPLES
    threads: int | None = None

    def runs(self) -> list[Run]:
        """Return every run that is known to be needed, each once."""
        return distinct([run for plan in self.plans for run in plan.runs(self.store.outcome)])

    def growing(self) -> bool:
        """Return whether pending results will add runs."""
        return any(plan.growing(self.store.outcome) for plan in self.plans)

    def possible(self, run: Run) -> bool:
        """Return whether this machine has the data and weights of the run."""
        backbone = run.settings.get("backbone")
        random = run.settings.get("weights") == "none"
        weights = random or backbone not in self.file_backbones or backbone in self.weights
        return run.data in self.sources and weights


class LoadedData:
    """Experiments and image caches that the runs of one process share."""

    def __init__(self, experiments: Mapping[str, Experiment] | None = None) -> None:
        self.experiments = dict(experiments or {})
        self.caches: dict[tuple[str, int | None], Cache | None] = {}

    def load(self, runs: Sequence[Run], job: Job) -> None:
        """Load the data of every run that is not recorded yet."""
        names = {run.data for run in runs if job.store.outcome(run.id) is None}
        for name in names - set(self.experiments):
            self.experiments[name] = job.sources[name]()

    def cache(self, data: str, settings: Settings) -> Cache | None:
        """Return the images on the GPU, shared by all runs on the data; None without a GPU."""
        import torch

        from spml.data.images.cache import open_cache
        from spml.train.resolve import resolve

        on_gpu = torch.cuda.is_available() and settings.accelerator in ("auto", "cuda")
        if not on_gpu or settings.cache is not None:
            return None
        experiment = self.experiments[data]
        size = resolve(settings, experiment).size
        if (data, size) not in self.caches:
            tables = [
                table for table in (experiment.observed, experiment.test) if table is not None
            ]
            self.caches[data, size] = open_cache(
                tables, size, "device", folder=settings.cache_dir, device="cuda"
            )
        return self.caches[data, size]


def run_pending(
    job: Job,
    experiments: Mapping[str, Experiment] | None = None,
    on_recorded: Callable[[str], None] | None = None,
) -> int:
    """Train runs until none is pending, and return the number of recorded runs.

    An interrupted run keeps its checkpoint and is resumed by the next call. Unreadable data stop
    the call, and no run is recorded as failed. A run that another process still trains is skipped,
    even if its lock expired: that process records it. `on_recorded` is called with the id of each
    run after it is recorded.
    """
    data = LoadedData(experiments)
    recorded = 0
    foreign: set[str] = set()  # ids of runs that another process still trains
    while True:
        runs = [run for run in job.runs() if job.possible(run) and run.id not in foreign]
        data.load(runs, job)
        claimed = job.store.take(runs)
        if claimed is None:
            running = any(job.store.state(run.id) == "running" for run in runs)
            if not (running and job.growing()):
                return recorded
            time.sleep(PAUSE)
            continue
        run, lock = claimed
        with lock.held():
            record = _train(run, job, data)
            if record is None:
                foreign.add(run.id)
                continue
            job.store.write(run, record)
        recorded += 1
        if on_recorded is not None:
            on_recorded(run.id)
        if "error" in record and _device_is_lost():
            raise RuntimeError(f"the GPU is unusable since {run.id}: {record['error']}")


def _train(run: Run, job: Job, data: LoadedData) -> Record | None:
    """Train a run and return its record; None if another process trains it."""
    from spml.bench.record import condensed
    from spml.runs.folder import TakenError
    from spml.train import fit

    try:
        settings = _settings(run, job)
        folder = job.store.run_folder(run)
        details = {} if job.details is None else job.details(run)
        fit(
            data.experiments[run.data],
            settings,
            folder,
            options=run.options,
            resume=True,
            quiet=True,
            extra_config={**details, **_pixels(run)},
            cache=data.cache(run.data, settings),
        )
        return condensed(folder, job.resamples)
    except TakenError:
        return None
    except DataError:  # the other runs on these data would fail as well
        raise
    except UserError as error:
        return {"error": " ".join(str(error).split())}
    except Exception as error:  # a failed run must not stop the others
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in frames]
        return {"error": " ".join(f"{type(error).__name__}: {error}".split()), "where": where}
    finally:
        gc.collect()


def _settings(run: Run, job: Job) -> Settings:
    from spml.train import Settings

    known = {item.name for item in fields(Settings)}
    values = {**run.settings, **job.runtime, "method": run.method, "seed": run.seed}
    file = job.weights.get(str(values.get("backbone")))
    if file and values.get("weights") != "none":
        values["weights"] = file
    return Settings(**{name: value for name, value in values.items() if name in known})


def _pixels(run: Run) -> Record:
    """Return the config entry that names the version of a benchmark's images."""
    name = benchmark(run.data)
    return {} if name == run.data else {"pixels": run.data[len(name) + 1 :]}


def _device_is_lost() -> bool:
    """Return whether this process cannot use its GPU any more, so that another must take over."""
    import torch

    if not torch.cuda.is_available():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


class Workers:
    """Worker processes; a process that dies while runs are pending is replaced."""

    def __init__(self, job: Job, count: int) -> None:
        self.job, self.count = job, count
        self.context = multiprocessing.get_context("spawn")
        self.processes = [self._start() for _ in range(count)]
        self.replaced = 0

    def _start(self) -> SpawnProcess:
        process = self.context.Process(target=_worker, args=(self.job,), daemon=False)
        process.start()
        return process

    def alive(self) -> bool:
        """Replace processes that died, and return whether any process is alive."""
        for place, process in enumerate(self.processes):
            if process.exitcode not in (None, 0, REFUSED) and self.replaced < 2 * self.count:
                self.replaced += 1
                self.processes[place] = self._start()
        return any(process.is_alive() for process in self.processes)

    def check(self) -> None:
        """Raise an error if workers failed and runs are still pending."""
        codes = {process.exitcode or 0 for process in self.processes} - {0}
        if not codes or all(self.job.store.state(run.id) != "pending" for run in self.job.runs()):
            return
        if codes == {REFUSED}:
            raise SystemExit(REFUSED)  # each worker printed its error
        failed = ", ".join(str(code) for code in sorted(codes - {REFUSED}))
        raise UserError(
            f"workers ended with exit code {failed} and left runs pending; "
            "--jobs 1 runs them in this process and shows the error"
        )

    def stop(self) -> None:
        """Ask every process to stop, and wait while they save their runs."""
        for process in self.processes:
            process.terminate()
        end = time.time() + GRACE
        for process in self.processes:
            process.join(max(0.0, end - time.time()))
            if process.is_alive():
                process.kill()


def _worker(job: Job) -> None:
    """Run one worker process. Ctrl-C does not reach it: its parent process stops it."""
    from spml.train.supervisor import follow

    if hasattr(os, "setpgrp"):
        os.setpgrp()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    follow(os.getppid())
    if job.threads is not None:
        import torch

        torch.set_num_threads(job.threads)
    try:
        run_pending(job)
    except KeyboardInterrupt:
        os._exit(0)  # without waiting for decoding threads
    except UserError as error:
        print(f"spml: {error}", file=sys.stderr, flush=True)
        os._exit(REFUSED)
