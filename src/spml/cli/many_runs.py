"""Commands that train many runs, on any number of processes and machines, and fill a table."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from spml.cli import DataOptions, log
from spml.cli.set_options import option_text
from spml.errors import UserError
from spml.files import write_text
from spml.machine import cores
from spml.runs.settings import Settings

if TYPE_CHECKING:
    from spml.bench.live_table import LiveTable
    from spml.bench.plan import Case, Plan, Record, Run, Search
    from spml.bench.store import RunStore
    from spml.bench.tables import Table
    from spml.bench.workers import Job, Workers
    from spml.data import Experiment

LOOK = 0.5  # seconds between two looks at the records that workers wrote
RESUME = "run the same command to resume"


@dataclass(frozen=True, kw_only=True)
class ManyRuns(DataOptions, Settings):
    """Options and steps of a command that trains many runs."""

    tables: ClassVar[tuple[str, ...]] = ()  # files that are written after the runs

    method: Annotated[str, tyro.conf.Fixed, tyro.conf.Suppress] = "gr"
    seed: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 0
    devices: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 1
    nodes: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 1
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = ""
    """digits, digits-many, voc, coco, nuswide, cub, or a path:
    a table (CSV, TSV, Parquet), a folder, .npz or .npy."""
    resamples: int = 1000
    """Number of resamples of the test images, for comparisons between rows."""
    jobs: int = 1
    """Number of runs at the same time. Each has its own process, also on one GPU."""
    retry: bool = False
    """Train failed runs again."""

    def train_all(
        self, plan: Plan, store: RunStore, experiment: Experiment, *, quiet: bool
    ) -> dict[str, int]:
        """Train the pending runs of a plan, and return the number of runs in each state."""
        from spml.bench.live_table import LiveTable
        from spml.bench.record import refuse_foreign, write_overview
        from spml.bench.workers import Workers, run_pending
        from spml.runs.record import fingerprint
        from spml.train.fitting import make_model
        from spml.train.resolve import resolve

        refuse_foreign(store.path, ("plan.json", *self.tables))
        store.refuse_other_data(plan.runs(store.outcome), fingerprint(experiment))
        if self.retry:
            store.forget_failures(plan.runs(store.outcome))
        job = self._job(plan, store)
        if any(store.outcome(run.id) is None for run in job.runs()):
            # settings that no run can use are an error before any run
            make_model(experiment, resolve(self, experiment))
        store.home.mkdir(parents=True, exist_ok=True)
        write_overview(store.path / "plan.json", job.runs(), store)
        progress = LiveTable(plan, store, quiet=quiet)
        try:
            with progress.showing():
                if self.jobs == 1:
                    run_pending(job, {self.data: experiment}, progress.update)
                else:
                    self._wait(Workers(job, self.jobs), progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(RESUME) from None
        finally:
            counts = write_overview(store.path / "plan.json", job.runs(), store)
        return counts

    def _check_counts(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise UserError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.resamples < 0:
            raise UserError(f"--resamples must be at least 0, not {self.resamples}")

    def report_open(self, counts: dict[str, int], store: RunStore) -> None:
        """Print the number of pending and failed runs; exit with code 1 if runs failed."""
        pending = counts["pending"] + counts["running"]
        if pending:
            log(f"runs pending or owned by other processes: {pending}; {RESUME}")
        if counts["failed"]:
            plan = store.path / "plan.json"
            log(f"runs that failed: {counts['failed']}, see {plan}; --retry trains them again")
            raise SystemExit(1)

    @property
    def threads(self) -> int | None:
        """CPU threads of each worker; None, torch's default, for a single one."""
        return max(1, cores() // self.jobs) if self.jobs > 1 else None

    def _wait(self, workers: Workers, progress: LiveTable) -> None:
        try:
            while workers.alive():
                time.sleep(LOOK)
                progress.update()
            progress.update()
            workers.check()
        finally:
            workers.stop()

    def _job(self, plan: Plan, store: RunStore) -> Job:
        from spml.bench.workers import Job

        return Job(
            [plan],
            store,
            {self.data: self.loader(self.data, self.observe_seed, self.split_seed)},
            runtime=self.changed_settings()[1],
            details=partial(self._details, store),
            resamples=self.resamples,
            threads=self.threads,
        )

    def _details(self, store: RunStore, run: Run) -> Record:
        """Return entries for config.json: the source of the data and the command of the run."""
        from spml.cli.commands.train import Train

        train = Train(
            data=run.data,
            method=run.method,
            set=[f"{name}={option_text(value)}" for name, value in run.options.items()],
            seed=run.seed,
            root=self.root,
            out=store.run_folder(run),
            **{**run.settings, **self.changed_settings()[1]},
        )
        return {**self.sources(), "command": train.command()}

    def changed_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the changed settings: those that define a run, and those of execution."""
        from spml.runs.settings import defines_run

        settings = {item.name for item in fields(Settings)}
        defining, runtime = {}, {}
        for item in (*fields(Settings), *fields(DataOptions)):
            name, value = item.name, getattr(self, item.name)
            if value == item.default or name in ("root", "method", "seed"):
                continue
            if name in settings and not defines_run(name):
                runtime[name] = value
            else:
                defining[name] = str(value) if isinstance(value, Path) else value
        return defining, runtime


@dataclass(frozen=True, kw_only=True)
class TableOfRuns(ManyRuns):
    """Options and steps of a command that fills a table."""

    tables = ("bench.json", "table.md", "table.csv", "table.tex", "table.html")

    seeds: int = 3
    """Number of final runs of each row."""
    tune: bool = False
    """Search settings with Optuna, on validation with seed 0.
    It searches each row's learning rate and options. Final runs have new seeds."""
    trials: int = 6
    """Trials of --tune for each row."""
    rates: tuple[float, ...] = ()
    """Learning rates of a grid. Default: 0.4, 1 and 2 times the data's."""
    against: str | None = None
    """Row that the others are compared with, on resampled test images. Default: gr."""
    out: Path | None = None
    """Folder of runs, records and tables. Default: bench/DATA, or ablate/DATA.
    Give it again to resume, also from several machines at once."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Print the table of a bench.json without training."""
    format: Literal["text", "md", "csv", "tex", "html"] = "text"
    """Format of the printed table. --out receives all formats."""
    verify: bool = False
    """Recompute every recorded figure in --out from its scores, without training.
    Exit code 1 if one differs."""
    quiet: bool = False
    """Print only the table and errors."""

    def plan(self, experiment: Experiment) -> Plan:
        """Return the plan of the table."""
        raise NotImplementedError

    def folder(self) -> Path:
        """Return the folder of runs, records and tables."""
        return self.out or Path(type(self).__name__.lower()) / Path(self.data).stem

    def run(self) -> None:
        """Train the pending runs, then write and print the table."""
        from spml.bench.record import read_collected
        from spml.bench.store import RunStore

        if self.from_ is not None:
            self._print(self._table(read_collected(self.from_)))
        elif self.verify:
            self._verify()
        else:
            store = RunStore(self.folder())
            _, counts = self.fill(store)
            self.report_open(counts, store)

    def fill(self, store: RunStore) -> tuple[Plan, dict[str, int]]:
        """Train the pending runs, write and print the table; return plan and counts of states."""
        if not self.data:
            raise UserError("give DATA, such as digits; or --from FILE, or --verify with --out")
        self._check_counts("seeds", "jobs", "trials")
        experiment = self.load(self.data, self.observe_seed, self.split_seed)
        plan = self.plan(experiment)
        self._against([case.label for case in plan.cases])
        self._check_search(plan.search)
        counts = self.train_all(plan, store, experiment, quiet=self.quiet)
        self._write_tables(plan, store)
        return plan, counts

    def _check_search(self, search: Search | None) -> None:
        """Refuse options that do not belong to the chosen search."""
        from spml.bench.search import Grid, Tune

        if self.rates and not isinstance(search, Grid):
            raise UserError("--rates belongs to a grid, and no grid is run; use --lr for one rate")
        if self.trials != TableOfRuns.trials and not isinstance(search, Tune):
            raise UserError("--trials belongs to --tune; add --tune or leave out --trials")
        if len(set(self.rates)) < len(self.rates) or not all(rate > 0 for rate in self.rates):
            raise UserError(
                f"--rates must be above 0 and distinct, not {', '.join(map(str, self.rates))}"
            )

    def _plan(
        self, table: str, cases: tuple[Case, ...], experiment: Experiment, *, grid: bool
    ) -> Plan:
        """Return the plan of a table; a row's search takes seed 0 from its final runs."""
        from spml.bench.plan import Plan
        from spml.bench.search import GRID_FACTORS, Grid, Tune
        from spml.train.resolve import data_defaults

        search: Search | None = None
        lr = self.lr or data_defaults(experiment).lr
        if self.tune:
            search = Tune(self.trials, lr)
        elif grid:
            rates = tuple(float(f"{factor * lr:.3g}") for factor in GRID_FACTORS)
            search = Grid(self.rates or rates)
        seeds = range(1, self.seeds + 1) if search else range(self.seeds)
        return Plan(table, self.data, cases, tuple(seeds), self.changed_settings()[0], search)

    def _write_tables(self, plan: Plan, store: RunStore) -> None:
        from spml.bench.formats import FORMATS
        from spml.bench.record import as_text
        from spml.bench.tables import collected

        stored = collected(plan, store.outcome)
        write_text(store.path / "bench.json", as_text(stored, "rows", "runs"))
        table = self._table(stored)
        for name, formatted in FORMATS.items():
            write_text(store.path / f"table.{name}", formatted(table))
        self._print(table)
        if not self.quiet:
            log(f"written to {store.path}: {', '.join(self.tables)}")

    def _against(self, labels: list[str]) -> str | None:
        """Return the row to compare the others with; raise UserError if it does not exist."""
        if self.against is not None and self.against not in labels:
            raise UserError(f"--against {self.against}: no such row; rows: {', '.join(labels)}")
        full = next((label for label in labels if label in ("gr", "k̂ ✓, v ✓, L ✓")), None)
        return self.against or full

    def _table(self, stored: Record) -> Table:
        from spml.bench.tables import table

        return table(stored, self._against([row["label"] for row in stored["rows"]]))

    def _print(self, table: Table) -> None:
        from spml.bench.formats import FORMATS, cells
        from spml.cli.output.tables import print_results

        if self.format == "text":
            print_results(cells(table, brief=True))
        else:
            print(FORMATS[self.format](table), end="")

    def _verify(self) -> None:
        from spml.bench.store import SCORED
        from spml.bench.verify import verify, without_scores

        home = self.folder()
        runs, records = home / "runs", home / "records"
        if (home / SCORED).is_dir():  # records that were published without their run folders
            runs, records = home / SCORED, home
        checks = list(verify(runs, records))
        for check in checks:
            if not (self.quiet and check.agrees):
                print(check)
        if number := without_scores(runs, records):
            log(f"recorded without scores, not checked: {number} runs")
        if not all(check.agrees for check in checks):
            raise SystemExit(1)
