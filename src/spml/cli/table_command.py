"""What `spml bench` and `spml ablate` have in common: many runs, made by anyone who has time, and their table."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from spml.cli.data_options import DataOptions
from spml.train.settings import Settings

if TYPE_CHECKING:
    from spml.bench.plan import Plan, Search
    from spml.bench.work import Work
    from spml.data import Experiment

LOOK = 0.5  # seconds between two looks at what the workers have done
HERE = ("accelerator",)  # say where a run computes, and are no part of what it is


@dataclass(frozen=True, kw_only=True)
class TableCommand(DataOptions, Settings):
    """Fields and doings of a command that fills a table."""

    method: Annotated[str, tyro.conf.Fixed, tyro.conf.Suppress] = "gr"
    seed: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 0
    devices: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 1
    nodes: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 1
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = ""
    """digits, digits-many, voc, coco, nuswide, cub, or the path of a CSV or .npz file."""
    seeds: int = 3
    """Runs that count, for each row."""
    tune: bool = False
    """Choose each row's learning rate and options on validation with Optuna, seed 0; then run fresh seeds."""
    trials: int = 6
    """Trials of --tune for each row."""
    rates: tuple[float, ...] = ()
    """Learning rates of a grid. Default: 0.4, 1 and 2 times the data's."""
    against: str | None = None
    """Row that the others are compared with, on resampled test images. Default: gr."""
    resamples: int = 1000
    """Of the test images, for that comparison."""
    out: Path | None = None
    """Folder of runs, records and tables; give it again to go on, also from other machines at the same time."""
    jobs: int = 1
    """Runs side by side, each in a process of its own, on one GPU too."""
    retry: bool = False
    """Make failed runs again."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Print the table of a bench.json; nothing is run."""
    format: Literal["text", "md", "csv", "tex", "html"] = "text"
    """How the table is printed in the end; all are written to --out."""
    verify: bool = False
    """Compute every recorded figure in --out from its scores again; nothing is run. Exit code 1 where one differs."""
    quiet: bool = False
    """Print nothing but the table and errors."""

    def plan(self, experiment: Experiment) -> Plan:
        """The table to fill."""
        raise NotImplementedError

    def folder(self) -> Path:
        """Of runs, records and tables."""
        raise NotImplementedError

    def run(self) -> None:
        """Make the runs that are open, and the table."""
        if self.from_ is not None:
            from spml.bench.files import read_collected

            return self._print(read_collected(self.from_))
        if self.verify:
            return self._verify()
        return self._fill()

    def _fill(self) -> None:
        from spml.bench.files import write_overview
        from spml.bench.shelf import Shelf
        from spml.bench.watch import Watch
        from spml.bench.work import Workers, work
        from spml.errors import UserError

        if not self.data:
            raise UserError("give DATA, such as digits; or --from FILE, or --verify with --out")
        for name in ("seeds", "jobs", "trials"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} must be at least 1, not {getattr(self, name)}")
        experiment = self.load(self.data, self.observe_seed, self.split_seed)
        plan, shelf = self.plan(experiment), Shelf(self.folder())
        if self.retry:
            shelf.forget_failures(plan.runs(shelf.outcome))
        job = self._job(plan, shelf)
        write_overview(shelf.path / "plan.json", job.runs(), shelf)
        watch = Watch(plan, shelf, quiet=self.quiet)
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
        self._finish(plan, shelf, counts)

    def _wait(self, workers: Any, watch: Any) -> None:
        try:
            while workers.alive():
                time.sleep(LOOK)
                watch.update()
            watch.update()
        finally:
            workers.stop()

    def _job(self, plan: Plan, shelf: Any) -> Work:
        from spml.bench.work import Work

        threads = max(1, (os.cpu_count() or 1) // self.jobs) if self.jobs > 1 else None
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
        from spml.train.record import NOT_OF_THE_RUN

        own = [item for kind in (Settings, DataOptions) for item in fields(kind)]
        given = {item.name: getattr(self, item.name) for item in own if getattr(self, item.name) != item.default}
        making = {name: value for name, value in given.items() if name in (*NOT_OF_THE_RUN, *HERE)}
        where = {"root", "method", "seed", *making}
        return {n: str(v) if isinstance(v, Path) else v for n, v in given.items() if n not in where}, making

    def _lr(self, experiment: Experiment) -> float:
        from spml.train.settings import data_defaults

        return self.lr or data_defaults(experiment).lr

    def _grid(self, experiment: Experiment) -> Search:
        from spml.bench.search import GRID_FACTORS, Grid

        base = self._lr(experiment)
        return Grid(self.rates or tuple(float(f"{factor * base:.3g}") for factor in GRID_FACTORS))

    def _tune(self, experiment: Experiment) -> Search:
        from spml.bench.search import Tune

        return Tune(self.trials, self._lr(experiment))

    def _finish(self, plan: Plan, shelf: Any, counts: dict[str, int]) -> None:
        from spml.atomic import write_text
        from spml.bench.files import write_collected
        from spml.bench.tables import collected, table
        from spml.bench.write import FORMATS
        from spml.cli import say

        stored = collected(plan, shelf.outcome)
        write_collected(shelf.path / "bench.json", stored)
        for name, as_text in FORMATS.items():
            write_text(shelf.path / f"table.{name}", as_text(table(stored, self._against(stored))))
        self._print(stored)
        open_ = counts["pending"] + counts["running"]
        if open_:
            say(f"{open_} runs are open or being made by others; the same command goes on")
        if counts["failed"]:
            say(f"{counts['failed']} runs failed, see {shelf.path / 'plan.json'}; --retry makes them again")
            raise SystemExit(1)

    def _against(self, stored: dict[str, Any]) -> str | None:
        from spml.errors import UserError

        labels = [row["label"] for row in stored["rows"]]
        if self.against is not None and self.against not in labels:
            raise UserError(f"--against {self.against}: no such row; there are {', '.join(labels)}")
        full = next((label for label in labels if label in ("gr", "k̂ ✓, v ✓, L ✓")), None)
        return self.against or full

    def _print(self, stored: dict[str, Any]) -> None:
        from spml.bench.tables import table
        from spml.bench.write import FORMATS, cells
        from spml.cli.tables import shown

        made = table(stored, self._against(stored))
        if self.format == "text":
            return shown(cells(made, brief=True))
        return print(FORMATS[self.format](made), end="")

    def _verify(self) -> None:
        from spml.bench.verify import verify

        checks = list(verify(self.folder() / "runs"))
        for check in checks:
            if not (self.quiet and check.agrees):
                print(check)
        if not all(check.agrees for check in checks):
            raise SystemExit(1)
