"""The recorded runs as tables, and as a list of runs with the commands that repeat them."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plans import Setup, against, later_trials
from voc_plan import VOC

from spml.bench.formats import versus
from spml.bench.plan import Case, Plan, Record, Run, done_in
from spml.bench.published import Quote
from spml.bench.store import RunStore
from spml.bench.tables import Row, Table, collected, table
from spml.cli.commands.train import Train
from spml.cli.set_options import option_text
from spml.metrics.bootstrap import Comparison
from spml.report.format import signed

OPEN = "not run yet"


@dataclass(frozen=True)
class Recorded:
    """All plans with their recorded runs."""

    every: Sequence[Plan]
    store: RunStore
    pixels: str
    setup: Setup = VOC
    documents: dict[str, Record] = field(default_factory=dict, compare=False)

    @classmethod
    def read(
        cls, results: Path | None = None, plan: Path | None = None, setup: Setup = VOC
    ) -> Recorded:
        """Read the records of a setup, or those of another folder."""
        pixels = json.loads((plan or setup.overview).read_text(encoding="utf-8"))["pixels"]
        store = RunStore(Path("nowhere"), results or setup.results)
        return cls(setup.plans(pixels), store, pixels, setup)

    def plan(self, name: str) -> Plan:
        return next(plan for plan in self.every if plan.table == name)

    def has(self, name: str) -> bool:
        return any(plan.table == name for plan in self.every)

    def table(self, plan: Plan, base: str | None = None) -> Table:
        if plan.table not in self.documents:
            self.documents[plan.table] = collected(plan, self.store.outcome)
        return table(self.documents[plan.table], base or against(plan))

    def row(self, name: str, label: str) -> Row:
        return next(row for row in self.table(self.plan(name)).rows if row.label == label)

    def finals(self, plan: Plan, case: Case) -> list[Run]:
        return plan.finals(case, self.store.outcome)

    def record(self, run: Run) -> Record | None:
        """The record of a run that succeeded."""
        record = self.store.outcome(run.id)
        return record if done_in(record) else None

    def done(self, plan: Plan) -> tuple[int, int]:
        """Number of recorded runs, and of all runs of the table, including those not chosen yet."""
        runs = [run for run in plan.runs(self.store.outcome) if run.table == plan.table]
        open_rows = sum(plan.undecided(case, self.store.outcome) for case in plan.cases)
        later = open_rows * plan.wanted + later_trials(plan, self.store)
        return sum(self.record(run) is not None for run in runs), len(runs) + later

    def repeat(self, runs: Sequence[Run]) -> str:
        """The command that repeats runs that differ only in their seeds."""
        first = runs[0]
        data = self.setup.data
        words = shlex.join(own_words(self.setup, first))
        version = first.data.partition("@")[2]
        root = "" if version == self.pixels else f"{data.upper()}=${version.upper()} "
        seeds = [run.seed for run in runs]
        if len(seeds) == 1:
            return f"`{root}{data} {words} --seed {seeds[0]}`"
        return f"`for s in {' '.join(map(str, seeds))}; do {root}{data} {words} --seed $s; done`"


def words_of(data: str, settings: Mapping[str, Any], **more: Any) -> list[str]:
    """Arguments of `spml train` on a benchmark beyond its defaults."""
    return shlex.split(Train(data=data, **settings, **more).command())[3:]


def own_words(setup: Setup, run: Run) -> list[str]:
    """Arguments of a run beyond the settings common to all."""
    common = setup.common
    own = {name: value for name, value in run.settings.items() if common.get(name) != value}
    options = [f"{name}={option_text(value)}" for name, value in run.options.items()]
    words = words_of(setup.data, own, method=run.method, set=options)
    return words if "--method" in words else ["--method", run.method, *words]


def shell_function(setup: Setup = VOC) -> str:
    """The settings common to all runs, as a shell function."""
    data, words = setup.data, shlex.join(words_of(setup.data, setup.common))
    return f'{data}() {{ spml train {data} --root "${data.upper()}" {words} "$@"; }}'


def progress(known: Recorded, plan: Plan, case: Case) -> str:
    """Progress of a row without a result."""
    trials = plan.trials(case, known.store.outcome)
    if plan.undecided(case, known.store.outcome):
        done = sum(known.record(run) is not None for run in trials)
        return f"{OPEN} ({done} of {len(trials)} trials)"
    return f"{OPEN} (0 of {plan.wanted})"


def interval(v: Comparison, sign: int = 1, digits: int = 2) -> str:
    """A difference with its 95 % interval; sign -1 negates both."""
    ends = sorted((sign * v.low, sign * v.high))
    low, high = (signed(end, digits) for end in ends)
    text = f"{signed(sign * v.difference, digits)} [{low}, {high}]"
    return text + ", one seed" * (v.p is None)


def measured(row: Row) -> str:
    """Mean ± deviation, with the number of seeds if some are missing."""
    return str(row.test) + (
        "" if row.seeds == row.wanted else f" ({row.seeds} of {row.wanted} seeds)"
    )


def result_table(
    known: Recorded,
    plan: Plan,
    *,
    quoted: bool = False,
    thirds: bool = False,
    base: str | None = None,
) -> str:
    """A plan's rows: figures and difference."""
    results = known.table(plan, base)
    head = ["", "test mAP", *([f"− {results.against}"] if results.against else [])]
    head += [
        *(("head", "middle", "tail") if thirds else ()),
        *(["paper, quoted"] if quoted else []),
    ]
    lines = [head, ["---"] * len(head)]
    notes: dict[str, int] = {}
    for row, case in zip(results.rows, plan.cases, strict=True):
        figure = measured(row) if row.seeds else progress(known, plan, case)
        cells = [row.label, "; failed: ".join([figure, *row.errors])]
        cells += [versus(row)] if results.against else []
        cells += [str(row.thirds[name]) for name in ("head", "middle", "tail")] if thirds else []
        cells += [quoted_figure(row.quoted.get(known.setup.data), notes)] if quoted else []
        lines.append(cells)
    return markdown(lines) + doubts(notes)


def quoted_figure(quote: Quote | None, notes: dict[str, int], otherwise: str = "") -> str:
    """A figure of the paper, or `otherwise`; a doubt about it is added to the notes."""
    if quote is None:
        return otherwise
    return quote.text + (
        f" [{notes.setdefault(quote.doubt, len(notes) + 1)}]" if quote.doubt else ""
    )


def doubts(notes: Mapping[str, int]) -> str:
    """The notes, below a table."""
    text = "  \n".join(f"[{number}] {text}" for text, number in notes.items())
    return text and f"\n\n{text}"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def trial_state(known: Recorded, plan: Plan) -> str:
    """How many trials of a plan are done."""
    runs = [run for case in plan.cases for run in plan.trials(case, known.store.outcome)]
    number = sum(known.record(run) is not None for run in runs)
    return f"Trials: {number} of {len(runs)} done."


def runs_csv(known: Recorded) -> str:
    """Every ended run of every table: its figures, its record and the command that repeats it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["table", "row", "part", "seed", "validation mAP", "test mAP", "record", "repeat"]
    )
    for plan in known.every:
        for case in plan.cases:
            chosen = plan.chosen(case, known.store.outcome)
            trials = plan.trials(case, known.store.outcome)
            for part, run in [
                *(("trial", run) for run in trials),
                *(("final", run) for run in known.finals(plan, case)),
            ]:
                if known.store.outcome(run.id) is None:
                    continue
                won = part == "trial" and chosen is not None and chosen.id == run.id
                writer.writerow(
                    [
                        plan.table,
                        case.label,
                        "chosen trial" if won else part,
                        run.seed,
                        *_maps(known.record(run)),
                        f"{run.id}.json",
                        known.repeat([run]).strip("`"),
                    ]
                )
    return text.getvalue()


def _maps(record: Record | None) -> list[str]:
    if record is None:
        return [OPEN, OPEN]
    return [f"{record['result'][key]:.2f}" for key in ("val_map", "test_map")]
