"""The recorded VOC runs as tables with links to run files and the commands that repeat them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voc_plan import COMMON, HERE, Plan, Run, RunStore, against, collected, plans, table

from spml.bench.formats import versus
from spml.bench.plan import Case, Record, done_in
from spml.bench.published import Quote
from spml.bench.tables import Row, Table
from spml.cli.commands.train import Train
from spml.cli.set_options import option_text
from spml.metrics.bootstrap import Comparison
from spml.report.format import signed

RESULTS = HERE / "results" / "voc2012-lite0"
LINK = "../benchmarks/results/voc2012-lite0"
OPEN = "not run yet"


@dataclass(frozen=True)
class Recorded:
    """All plans with their recorded runs."""

    every: Sequence[Plan]
    store: RunStore
    pixels: str

    @classmethod
    def read(cls, results: Path = RESULTS, plan: Path = HERE / "plan.json") -> Recorded:
        pixels = json.loads(plan.read_text(encoding="utf-8"))["pixels"]
        return cls(plans(pixels), RunStore(Path("nowhere"), results), pixels)

    def plan(self, name: str) -> Plan:
        return next(plan for plan in self.every if plan.table == name)

    def table(self, plan: Plan, base: str | None = None) -> Table:
        return table(collected(plan, self.store.outcome), base or against(plan))

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
        runs = plan.runs(self.store.outcome)
        to_come = sum(plan.undecided(case, self.store.outcome) for case in plan.cases) * len(
            plan.seeds
        )
        return sum(self.record(run) is not None for run in runs), len(runs) + to_come

    def repeat(self, runs: Sequence[Run]) -> str:
        """The command that repeats runs that differ only in their seeds."""
        first = runs[0]
        words = shlex.join(own_words(first))
        root = "" if first.data == f"voc@{self.pixels}" else "VOC=$ORIGINAL "
        seeds = [run.seed for run in runs]
        if len(seeds) == 1:
            return f"`{root}voc {words} --seed {seeds[0]}`"
        return f"`for s in {' '.join(map(str, seeds))}; do {root}voc {words} --seed $s; done`"


def words_of(settings: Mapping[str, Any], **more: Any) -> list[str]:
    """Arguments of `spml train voc` beyond its defaults."""
    return shlex.split(Train(data="voc", **settings, **more).command())[3:]


def own_words(run: Run) -> list[str]:
    """Arguments of a run beyond the settings common to all."""
    own = {name: value for name, value in run.settings.items() if COMMON.get(name) != value}
    options = [f"{name}={option_text(value)}" for name, value in run.options.items()]
    words = words_of(own, method=run.method, set=options)
    return words if "--method" in words else ["--method", run.method, *words]


def shell_function() -> str:
    """The settings common to all runs, as a shell function."""
    return f'voc() {{ spml train voc --root "$VOC" {shlex.join(words_of(COMMON))} "$@"; }}'


def run_links(known: Recorded, runs: Sequence[Run]) -> str:
    """Links to the recorded runs, by seed."""
    recorded = [run for run in runs if known.record(run) is not None]
    if not recorded:
        return ""
    name = recorded[0].id.rpartition("-")[0]
    return f"{name}-" + ", ".join(f"[{run.seed}]({LINK}/{run.id}.json)" for run in recorded)


def progress(known: Recorded, plan: Plan, case: Case) -> str:
    """Progress of a row without a result."""
    trials = plan.trials(case, known.store.outcome)
    if plan.undecided(case, known.store.outcome):
        done = sum(known.record(run) is not None for run in trials)
        return f"{OPEN} ({done} of {len(trials)} trials)"
    return f"{OPEN} (0 of {len(plan.seeds)})"


def interval(v: Comparison, sign: int = 1) -> str:
    """A difference with its 95 % interval; sign -1 negates both."""
    low, high = sorted((sign * v.low, sign * v.high))
    return f"{signed(sign * v.difference)} [{signed(low)}, {signed(high)}]"


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
    """A plan's rows: figures, difference, run files, command."""
    results = known.table(plan, base)
    head = ["", "test mAP", *([f"− {results.against}"] if results.against else [])]
    head += [
        *(("head", "middle", "tail") if thirds else ()),
        *(["paper, quoted"] if quoted else []),
        "runs",
        "repeat",
    ]
    lines = [head, ["---"] * len(head)]
    notes: dict[str, int] = {}
    for row, case in zip(results.rows, plan.cases, strict=True):
        finals = known.finals(plan, case)
        figure = measured(row) if row.seeds else progress(known, plan, case)
        cells = [row.label, "; failed: ".join([figure, *row.errors])]
        cells += [versus(row)] if results.against else []
        cells += [str(row.thirds[name]) for name in ("head", "middle", "tail")] if thirds else []
        cells += [quoted_figure(row.quoted.get("voc"), notes)] if quoted else []
        cells += [
            run_links(known, finals),
            known.repeat(finals) if finals else "the trials choose its settings",
        ]
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


def trial_table(known: Recorded, plan: Plan) -> str:
    """Every trial of a plan, in a folded table."""
    lines = [["", "chosen", "validation mAP", "run", "repeat"], ["---"] * 5]
    trials = [(case, run) for case in plan.cases for run in plan.trials(case, known.store.outcome)]
    for case, run in trials:
        record = known.record(run)
        best = plan.chosen(case, known.store.outcome)
        mark = "✓" if best is not None and best.id == run.id else ""
        figure = f"{record['result']['val_map']:.2f}" if record else f"{OPEN} (0 of 1)"
        lines.append([case.label, mark, figure, run_links(known, [run]), known.repeat([run])])
    number = sum(known.record(run) is not None for _, run in trials)
    summary = f"<summary>Trials: {number} of {len(trials)} done</summary>"
    return "\n".join(["<details>", summary, "", markdown(lines), "", "</details>"])
