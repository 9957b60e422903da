"""Progress of many runs: a table that fills on a terminal, else one line for each recorded run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spml.bench.plan import Case, Plan, Run, done_in
from spml.bench.store import RunStore
from spml.bench.tables import shown_figure
from spml.errors import UserError
from spml.report.groups import Summary
from spml.runs import run as run_folder


class LiveTable:
    """Progress display of a plan, by default on standard error; `quiet` prints nothing."""

    def __init__(
        self, plan: Plan, store: RunStore, *, quiet: bool = False, console: Console | None = None
    ) -> None:
        self.plan, self.store = plan, store
        self.console = console or Console(stderr=True)
        self.quiet, self.live = quiet, self.console.is_terminal and not quiet
        self.printed: set[str] | None = None

    def showing(self) -> AbstractContextManager[Any]:
        """Show the live table until the block ends."""
        self.update()
        if not self.live:
            return nullcontext()
        return Live(self, console=self.console, refresh_per_second=1, transient=True)

    def update(self, run_id: str = "") -> None:
        """Print a line for each run recorded since the last call, unless the live table is on."""
        if self.live or self.quiet:
            return
        runs = {run.id: run for run in self.plan.runs(self.store.outcome)}
        recorded = [name for name in runs if self.store.outcome(name) is not None]
        if self.printed is None:
            self.printed = set(recorded)
            if recorded:
                self._print(f"runs recorded before: {len(recorded)}")
        for name in recorded:
            if name not in self.printed:
                self.printed.add(name)
                self._print(self._line(runs[name]))

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _line(self, run: Run) -> str:
        record = self.store.outcome(run.id) or {}
        name = f"{run.row}, {'trial, ' if run.stage == 'trial' else ''}seed {run.seed}"
        if not done_in(record):
            return f"{name}: failed: {record.get('error')}"
        result = record["result"]
        test = "" if result.get("test_map") is None else f", test mAP {result['test_map']:.2f}"
        return f"{name}: validation {result['val_map']:.2f}{test}"

    def __rich__(self) -> Table:
        table = Table(
            "row", box=SIMPLE_HEAD, pad_edge=False, title=self.plan.table, title_justify="left"
        )
        outcomes = self.store.outcome
        finals = [run for case in self.plan.cases for run in self.plan.finals(case, outcomes)]
        records = [outcomes(run.id) or {} for run in finals]
        figure = shown_figure([record["result"] for record in records if done_in(record)])
        title = {"test_map": "test mAP", "val_map": "validation"}[figure]
        for name in ("trials", "runs", title, "now"):
            table.add_column(name, justify="left" if name == "now" else "right")
        for case in self.plan.cases:
            table.add_row(*(Text(cell) for cell in self._cells(case, figure)))
        return table

    def _cells(self, case: Case, figure: str) -> list[str]:
        outcomes = self.store.outcome
        trials, finals = self.plan.trials(case, outcomes), self.plan.finals(case, outcomes)
        states = {run.id: self.store.state(run.id) for run in trials + finals}
        done = [outcomes(run.id) or {} for run in finals if states[run.id] == "done"]
        figures = Summary.of([record["result"].get(figure) for record in done])
        failed = sum(state == "failed" for state in states.values())
        now = [self._now(run) for run in trials + finals if states[run.id] == "running"]
        ended = sum(states[run.id] in ("done", "failed") for run in trials)
        return [
            case.label,
            f"{ended}/{len(trials)}" if trials else "",
            f"{len(done)}/{self.plan.wanted}",
            "" if figures.mean is None else str(figures),
            ", ".join([*now, *([f"{failed} failed"] if failed else [])]),
        ]

    def _now(self, run: Run) -> str:
        epoch = 1
        with suppress(UserError):
            stored = run_folder.Run(self.store.run_folder(run))
            lines = len(stored.history)  # the first line is the state before training
            # the last epoch while the run is tested
            epoch = max(1, min(lines, stored.config.get("epochs") or lines))
        return f"{run.stage} seed {run.seed}, epoch {epoch}"
