"""What `spml bench` and `spml ablate` have in common: many runs, made by anyone who has time, and their table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from spml.cli.runs_command import RunsCommand

if TYPE_CHECKING:
    from spml.bench.plan import Plan, Search
    from spml.bench.tables import Table
    from spml.data import Experiment


@dataclass(frozen=True, kw_only=True)
class TableCommand(RunsCommand):
    """Fields and doings of a command that fills a table."""

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
    out: Path | None = None
    """Folder of runs, records and tables; give it again to go on, also from other machines at the same time.
    Default: bench/DATA, or ablate/DATA."""
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

    def tables(self) -> list[str]:
        """Names of the table's files."""
        from spml.bench.write import FORMATS

        return ["bench.json", *(f"table.{name}" for name in FORMATS)]

    def run(self) -> None:
        """Make the runs that are open, and the table."""
        if self.from_ is not None:
            from spml.bench.files import read_collected

            return self._print(self._table(read_collected(self.from_)))
        if self.verify:
            return self._verify()
        return self._fill()

    def _fill(self) -> None:
        from spml.bench.shelf import Shelf
        from spml.errors import UserError

        if not self.data:
            raise UserError("give DATA, such as digits; or --from FILE, or --verify with --out")
        self._check_counts(("seeds", "jobs", "trials"))
        experiment = self.load(self.data, self.observe_seed, self.split_seed)
        plan, shelf = self.plan(experiment), Shelf(self.folder())
        self._against([case.label for case in plan.cases])
        self._check_search(plan.search)
        counts = self.make(plan, shelf, experiment, quiet=self.quiet)
        self._finish(plan, shelf, counts)

    def _check_search(self, search: Search | None) -> None:
        """Refuse what only another way to choose settings would heed."""
        from spml.bench.search import Grid, Tune
        from spml.errors import UserError

        if self.rates and not isinstance(search, Grid):
            raise UserError(
                "--rates are those of a grid, and no grid is run; leave them out, or --lr gives one rate"
            )
        if self.trials != TableCommand.trials and not isinstance(search, Tune):
            raise UserError("--trials are those of --tune; give it too, or leave them out")
        if len(set(self.rates)) < len(self.rates) or not all(rate > 0 for rate in self.rates):
            raise UserError(
                f"--rates must be above 0 and each another, not {', '.join(map(str, self.rates))}"
            )

    def _lr(self, experiment: Experiment) -> float:
        from spml.train.resolve import data_defaults

        return self.lr or data_defaults(experiment).lr

    def _grid(self, experiment: Experiment) -> Search:
        from spml.bench.search import GRID_FACTORS, Grid

        base = self._lr(experiment)
        return Grid(self.rates or tuple(float(f"{factor * base:.3g}") for factor in GRID_FACTORS))

    def _tune(self, experiment: Experiment) -> Search:
        from spml.bench.search import Tune

        return Tune(self.trials, self._lr(experiment))

    def _finish(self, plan: Plan, shelf: Any, counts: dict[str, int]) -> None:
        from spml.bench.files import write_collected
        from spml.bench.tables import collected
        from spml.bench.write import FORMATS
        from spml.cli import say
        from spml.files import write_text

        stored = collected(plan, shelf.outcome)
        write_collected(shelf.path / "bench.json", stored)
        made = self._table(stored)
        for name, as_text in FORMATS.items():
            write_text(shelf.path / f"table.{name}", as_text(made))
        self._print(made)
        if not self.quiet:
            say(f"written to {shelf.path}: {', '.join(self.tables())}")
        self._tell(counts, shelf)

    def _against(self, labels: list[str]) -> str | None:
        """The row that the others are compared with; UserError where the one asked for is none."""
        from spml.errors import UserError

        if self.against is not None and self.against not in labels:
            raise UserError(f"--against {self.against}: no such row; there are {', '.join(labels)}")
        full = next((label for label in labels if label in ("gr", "k̂ ✓, v ✓, L ✓")), None)
        return self.against or full

    def _table(self, stored: dict[str, Any]) -> Table:
        from spml.bench.tables import table

        return table(stored, self._against([row["label"] for row in stored["rows"]]))

    def _print(self, made: Table) -> None:
        from spml.bench.write import FORMATS, cells
        from spml.cli.output.tables import shown

        if self.format == "text":
            return shown(cells(made, brief=True))
        return print(FORMATS[self.format](made), end="")

    def _verify(self) -> None:
        from spml.bench.shelf import SCORED
        from spml.bench.verify import verify, without_scores
        from spml.cli import say

        home = self.folder()
        apart = (home / SCORED).is_dir()  # records that are kept without their run folders
        runs, records = (home / SCORED, home) if apart else (home / "runs", home / "records")
        checks = list(verify(runs, records))
        for check in checks:
            if not (self.quiet and check.agrees):
                print(check)
        if number := without_scores(runs, records):
            say(f"recorded without scores, so not checked: {number} runs")
        if not all(check.agrees for check in checks):
            raise SystemExit(1)
