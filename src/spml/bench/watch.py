"""What a person sees while runs are made: a table that fills, or a line for each run where there is no terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spml.bench.plan import Case, Plan, Run, done_in
from spml.bench.shelf import Shelf
from spml.bench.tables import shown_figure
from spml.bench.write import spread
from spml.errors import UserError
from spml.report.groups import Summary
from spml.runs import run as run_folder


class Watch:
    """Looks at the shelf, and tells.

    Args:
        plan: whose rows are shown.
        shelf: where its runs stand.
        quiet: tell nothing.
    """

    def __init__(
        self, plan: Plan, shelf: Shelf, *, quiet: bool = False, console: Console | None = None
    ) -> None:
        self.plan, self.shelf = plan, shelf
        self.console = console or Console(stderr=True)
        self.quiet, self.live = quiet, self.console.is_terminal and not quiet
        self.told: set[str] | None = None

    def showing(self) -> AbstractContextManager[Any]:
        """The live table, until the block ends."""
        self.update()
        return (
            Live(self, console=self.console, refresh_per_second=1, transient=True)
            if self.live
            else nullcontext()
        )

    def update(self, run_id: str = "") -> None:
        """A line for each run that was recorded since the last look; none where the live table shows them."""
        if self.live or self.quiet:
            return
        runs = {run.id: run for run in self.plan.runs(self.shelf.outcome)}
        recorded = [name for name in runs if self.shelf.outcome(name) is not None]
        if self.told is None:
            self.told = set(recorded)
            if recorded:
                self._say(f"{len(recorded)} runs are there already")
        for name in recorded:
            if name not in self.told:
                self.told.add(name)
                self._say(self._line(runs[name]))

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _line(self, run: Run) -> str:
        record = self.shelf.outcome(run.id) or {}
        what = f"{run.row}, {'trial, ' if run.stage == 'trial' else ''}seed {run.seed}"
        if not done_in(record):
            return f"{what}: failed: {record.get('error')}"
        result = record["result"]
        test = "" if result.get("test_map") is None else f", test mAP {result['test_map']:.2f}"
        return f"{what}: validation {result['val_map']:.2f}{test}"

    def __rich__(self) -> Table:
        table = Table(
            "row", box=SIMPLE_HEAD, pad_edge=False, title=self.plan.table, title_justify="left"
        )
        finals = [
            run.id for case in self.plan.cases for run in self.plan.finals(case, self.shelf.outcome)
        ]
        done = [
            record["result"] for name in finals if done_in(record := self.shelf.outcome(name) or {})
        ]
        figure = shown_figure(done)
        for name in (
            "trials",
            "runs",
            {"test_map": "test mAP", "val_map": "validation"}[figure],
            "now",
        ):
            table.add_column(name, justify="left" if name == "now" else "right")
        for case in self.plan.cases:
            table.add_row(*(Text(cell) for cell in self._cells(case, figure)))
        return table

    def _cells(self, case: Case, figure: str) -> list[str]:
        outcomes = self.shelf.outcome
        trials, finals = self.plan.trials(case, outcomes), self.plan.finals(case, outcomes)
        states = {run.id: self.shelf.state(run.id) for run in trials + finals}
        done = [outcomes(run.id) or {} for run in finals if states[run.id] == "done"]
        figures = Summary.of([record["result"].get(figure) for record in done])
        failed = sum(state == "failed" for state in states.values())
        now = [self._now(run) for run in trials + finals if states[run.id] == "running"]
        ended = sum(states[run.id] in ("done", "failed") for run in trials)
        return [
            case.label,
            f"{ended}/{len(trials)}" if trials else "",
            f"{len(done)}/{len(self.plan.seeds)}",
            "" if figures.mean is None else spread(figures),
            ", ".join([*now, *([f"{failed} failed"] if failed else [])]),
        ]

    def _now(self, run: Run) -> str:
        return f"{run.stage} seed {run.seed}, epoch {_epochs(self.shelf.run_folder(run.id))}"


def _epochs(folder: Path) -> int:
    """The epoch that a run is in, by its history; the last while it is tested."""
    try:
        run = run_folder.Run(folder)
        lines = len(run.history)  # the first is of before training
        last = run.config.get("epochs") or lines
    except UserError:
        return 1
    return max(1, min(lines, last))
