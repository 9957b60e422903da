"""`spml demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spml.machine import cores


@dataclass(frozen=True)
class Demo:
    """Compare assume-negative, GR and full labels on the embedded digits.

    A preset of `spml bench` that also writes the comparison on one page, report.html.

    Example: spml demo --out demo
    """

    order: ClassVar[int] = 10

    out: Path = Path("demo")
    """Folder of the runs and the report. Finished runs are not repeated."""
    methods: tuple[str, ...] = ("an", "gr", "full")
    """Methods to compare."""
    seeds: int = 3
    """Runs of each method."""
    data: str = "digits"
    """digits or digits-many."""
    epochs: int | None = None
    """Number of epochs. Default: the data's."""
    jobs: int | None = None
    """Number of runs at the same time. Default: one per core."""

    def run(self) -> None:
        """Train all runs, then print the table and the path of the report."""
        from spml.bench.store import RunStore
        from spml.cli.commands.bench import Bench
        from spml.report import write_report
        from spml.runs.names import REPORT
        from spml.runs.run import Run

        total = len(self.methods) * self.seeds
        bench = Bench(
            data=self.data,
            methods=self.methods,
            seeds=self.seeds,
            epochs=self.epochs,
            jobs=min(cores(), total) if self.jobs is None else self.jobs,
            retry=True,
        )
        store = RunStore(self.out, layout="method")
        plan, counts = bench.fill(store)
        runs = [run for run in plan.runs(store.outcome) if store.state(run.id) == "done"]
        if runs:
            folders = [Run(store.run_folder(run)) for run in runs]
            for stored in folders:
                if not stored.has(REPORT):
                    write_report([stored.folder], stored.report)
            page = write_report([stored.folder for stored in folders], self.out / REPORT)
            print(f"report: {page}")
        bench.report_open(counts, store)
