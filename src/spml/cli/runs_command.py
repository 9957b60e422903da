"""What commands that make many runs have in common: anyone who has time makes the next one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from spml.cli.data_options import DataOptions
from spml.machine import cores
from spml.runs.settings import Settings

if TYPE_CHECKING:
    from spml.bench.plan import Plan
    from spml.bench.shelf import Shelf
    from spml.bench.work import Work
    from spml.data import Experiment

LOOK = 0.5  # seconds between two looks at what the workers have done


@dataclass(frozen=True, kw_only=True)
class RunsCommand(DataOptions, Settings):
    """Fields and doings of a command that makes many runs."""

    method: Annotated[str, tyro.conf.Fixed, tyro.conf.Suppress] = "gr"
    seed: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 0
    devices: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 1
    nodes: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 1
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = ""
    """digits, digits-many, voc, coco, nuswide, cub, or a path: a table (CSV, TSV, Parquet), a folder, .npz or .npy."""
    resamples: int = 1000
    """Of the test images, by which runs are compared."""
    jobs: int = 1
    """Runs side by side, each in a process of its own, on one GPU too."""
    retry: bool = False
    """Make failed runs again."""

    def make(
        self, plan: Plan, shelf: Shelf, experiment: Experiment, *, quiet: bool
    ) -> dict[str, int]:
        """Make the runs that are open; how many there are of each state in the end."""
        from spml.bench.files import refuse_foreign, write_overview
        from spml.bench.watch import Watch
        from spml.bench.work import Workers, work
        from spml.runs.record import fingerprint

        self._check_name()
        refuse_foreign(shelf.path, ("plan.json", *self.tables()))
        shelf.refuse_other_data(plan.runs(shelf.outcome), fingerprint(experiment))
        if self.retry:
            shelf.forget_failures(plan.runs(shelf.outcome))
        job = self._job(plan, shelf)
        if any(shelf.outcome(run.id) is None for run in job.runs()):
            self._try_settings(experiment)
        write_overview(shelf.path / "plan.json", job.runs(), shelf)
        watch = Watch(plan, shelf, quiet=quiet)
        try:
            with watch.showing():
                if self.jobs == 1:
                    work(job, {self.data: experiment}, watch.update)
                else:
                    self._wait(Workers(job, self.jobs), watch)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on") from None
        finally:
            counts = write_overview(shelf.path / "plan.json", job.runs(), shelf)
        return counts

    def _try_settings(self, experiment: Experiment) -> None:
        """Refuse settings and weights that no run could be made with, rather than record every run as failed."""
        from spml.train.fitting import make_model
        from spml.train.resolve import resolve

        make_model(experiment, resolve(self, experiment))

    def tables(self) -> list[str]:
        """Names of the files that are written once runs are made."""
        return []

    def _check_counts(self, names: Sequence[str]) -> None:
        from spml.errors import UserError

        for name in names:
            if getattr(self, name) < 1:
                raise UserError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.resamples < 0:
            raise UserError(f"--resamples must be at least 0, not {self.resamples}")

    def _check_name(self) -> None:
        """Refuse a path that reads as a version of a benchmark, whose published options and figures it would get."""
        from spml.bench.plan import benchmark
        from spml.errors import UserError

        if (name := benchmark(self.data)) != self.data:
            raise UserError(
                f"{self.data} would be taken for a version of {name}; write ./{self.data}"
            )

    def _tell(self, counts: dict[str, int], shelf: Shelf) -> None:
        """What is open or failed; exit code 1 where a run failed."""
        from spml.cli import say

        open_ = counts["pending"] + counts["running"]
        if open_:
            say(f"runs that are open or being made by others: {open_}; the same command goes on")
        if counts["failed"]:
            say(
                f"runs that failed: {counts['failed']}, see {shelf.path / 'plan.json'}; --retry makes them again"
            )
            raise SystemExit(1)

    def _wait(self, workers: Any, watch: Any) -> None:
        try:
            while workers.alive():
                time.sleep(LOOK)
                watch.update()
            watch.update()
            workers.check()
        finally:
            workers.stop()

    def _job(self, plan: Plan, shelf: Any) -> Work:
        from spml.bench.work import Work

        threads = max(1, cores() // self.jobs) if self.jobs > 1 else None
        return Work(
            [plan],
            shelf,
            {self.data: self.arguments(self.data, self.observe_seed, self.split_seed)},
            running=self._given()[1],
            about=self.sources(),
            resamples=self.resamples,
            threads=threads,
        )

    def _given(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings that were given: those that make a run what it is, and those that say how it is made."""
        from spml.runs.identity import defines_run

        own = [item for kind in (Settings, DataOptions) for item in fields(kind)]
        given = {
            item.name: getattr(self, item.name)
            for item in own
            if getattr(self, item.name) != item.default
        }
        names = {item.name for item in fields(Settings)}
        making = {
            name: value for name, value in given.items() if name in names and not defines_run(name)
        }
        where = {"root", "method", "seed", *making}
        return {
            n: str(v) if isinstance(v, Path) else v for n, v in given.items() if n not in where
        }, making
