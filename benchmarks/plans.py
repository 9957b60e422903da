"""The plan of the runs on a benchmark: it trains them, and can stop and resume anywhere.

`voc_plan.py` and `coco_plan.py` list the tables of their data and share this command line.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spml.bench.formats import markdown
from spml.bench.plan import Case, Outcomes, Plan, Run, distinct
from spml.bench.record import write_overview
from spml.bench.rows import ablation_cases, method_cases, paper_methods
from spml.bench.search import Grid
from spml.bench.store import RunStore
from spml.bench.tables import collected, table
from spml.bench.workers import Job, Workers
from spml.data import load
from spml.data.benchmarks import BENCHMARKS
from spml.model.backbones import PACKAGED

HERE = Path(__file__).parent
LITE0 = "tf_efficientnet_lite0"
FROM_FILES = frozenset({LITE0, "tf_efficientnet_lite2", "mobilenetv2_100"})
LR = 5e-5
RATES = Grid((2e-5, LR, 1e-4))
FRESH = (1, 2, 3)
ONE_RATE = {"smile": "smile at one rate", "mime": "mime at one rate"}  # a method, and its row
# of runs that only show that a machine can make them
TINY = {"backbone": "tiny", "weights": "none", "size": 64, "epochs": 1}


def protocol(size: int, batch_size: int) -> dict[str, Any]:
    """Settings that the runs of a plan share, the learning rate apart."""
    return {
        "backbone": LITE0,
        "weights": "pretrained",
        "size": size,
        "batch_size": batch_size,
        "epochs": 8,
        "flip": True,
        "optimizer": "adam",
        "head_lr": 10.0,
    }


def studied(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of the runs that studies read, which excludes trials."""
    return {name: settings[name] for name in ("backbone", "lr", "head_lr", "batch_size", "epochs")}


@dataclass(frozen=True)
class ChosenIn:
    """A search that takes the settings which the rows of another table chose."""

    plan: Plan

    def trials(self, plan: Plan, case: Case, outcomes: Outcomes) -> tuple[list[Run], bool]:
        """Return the other table's trials of the row of the same name."""
        own = next(one for one in self.plan.cases if one.label == case.label)
        assert self.plan.search is not None
        return self.plan.search.trials(self.plan, own, outcomes)


@dataclass(frozen=True)
class HeadRates:
    """Rates of the backbone, each with multiples of it for the head."""

    rates: tuple[float, ...]
    times: tuple[float, ...]

    def trials(self, plan: Plan, case: Case, outcomes: Outcomes) -> tuple[list[Run], bool]:
        """Return all trials, with the row's own options."""
        pairs = [(rate, times) for rate in self.rates for times in self.times]
        trials = [
            plan.run(case, "trial", plan.trial_seed, {}, lr=rate, head_lr=times)
            for rate, times in pairs
        ]
        return trials, True


@dataclass(frozen=True)
class Setup:
    """The recorded runs on a benchmark.

    Attributes:
        data: name of the benchmark.
        versions: versions of the data that all tables can have; the last is the default.
        plans: function (version) that returns the tables in the order in which they are filled.
        common: settings of all runs.
        results: folder of the records.
        overview: file that lists every run and its state.
        reference: test mAP of earlier runs, by row of the first table.
        seconds: time of a run by version of the data, on an H200 that several runs share.
    """

    data: str
    versions: tuple[str, ...]
    plans: Callable[[str], list[Plan]]
    common: Mapping[str, Any]
    results: Path
    overview: Path
    reference: Mapping[str, float]
    seconds: Mapping[str, float]


def comparison(data: str, common: Mapping[str, Any]) -> Plan:
    """Return the paper's comparison, each method tuned with an equal number of trials."""
    methods = [*paper_methods(), "full"]
    return Plan("Table B", data, method_cases(methods, {}), FRESH, dict(common), RATES)


def ablation(data: str, common: Mapping[str, Any]) -> Plan:
    """Return the paper's Table 3, each row tuned likewise."""
    paper = BENCHMARKS[data.partition("@")[0]].paper
    assert paper is not None
    cases = ablation_cases(round(1 / paper.positives, 4))
    return Plan("Table 3", data, cases, FRESH, dict(common), RATES)


def rehearsed(plan: Plan) -> Plan:
    """Return a table of the same rows with runs of a tiny model."""
    cases = tuple(replace(case, settings={**case.settings, **TINY}) for case in plan.cases)
    search = ChosenIn(rehearsed(plan.search.plan)) if isinstance(plan.search, ChosenIn) else None
    return replace(plan, cases=cases, search=search or plan.search)


def needed(every: Sequence[Plan], store: RunStore) -> list[Run]:
    return distinct([run for plan in every for run in plan.runs(store.outcome)])


def to_come(every: Sequence[Plan], store: RunStore) -> dict[str, int]:
    """Count the final runs of each table whose settings are not chosen yet."""
    open_rows = {
        plan.table: sum(plan.undecided(case, store.outcome) for case in plan.cases)
        for plan in every
    }
    return {
        plan.table: open_rows[plan.table] * plan.wanted for plan in every if open_rows[plan.table]
    }


def later_trials(plan: Plan, store: RunStore) -> int:
    """Count the trials of a table that depend on trials which have not ended."""
    count = getattr(plan.search, "count", 0)  # of a row; a grid knows all its trials
    if plan.search is None or not count:
        return 0
    found = [plan.search.trials(plan, case, store.outcome) for case in plan.cases]
    return sum(count - len(runs) for runs, complete in found if not complete)


def cost(setup: Setup, every: Sequence[Plan], store: RunStore) -> str:
    """Return how many runs are not recorded yet, and their time."""
    pending = [run.data for run in needed(every, store) if store.outcome(run.id) is None]
    later = to_come(every, store)
    for plan in every:
        pending += [plan.data] * (later.get(plan.table, 0) + later_trials(plan, store))
    seconds = sum(setup.seconds[data.partition("@")[2]] for data in pending)
    return f"{len(pending)} runs, about {seconds:,.0f} s on an H200"


def scored(every: Sequence[Plan]) -> frozenset[str]:
    """Return the runs whose scores figures and calibration need: AN and GR, with all seeds."""
    selected = [plan for plan in every if plan.table.partition(",")[0] in ("Table A", "pixels")]
    runs = [
        run for plan in selected for run in plan.runs(lambda name: None) if run.data == plan.data
    ]
    return frozenset(run.id for run in runs if run.row.partition(",")[0] in ("an", "gr"))


def weight_files(options: Sequence[str]) -> dict[str, str]:
    """Return the weight file of each backbone, from the options or an installed package."""
    files = {}
    for name, (module, holder) in PACKAGED.items():
        if find_spec(module) is not None:
            files[name] = str(getattr(import_module(module), holder).get_model_file_path())
    for word in options:
        name, equals, file = word.rpartition("=")
        files[name if equals else LITE0] = str(Path(file).resolve())
    return files


def make(setup: Setup, every: Sequence[Plan], store: RunStore, options: argparse.Namespace) -> None:
    """Train runs in parallel until all are done or time is up; the next call resumes the rest."""
    end = time.time() + 60 * options.minutes
    roots = dict(word.split("=", 1) for word in options.data)
    job = Job(
        every,
        store,
        {
            f"{setup.data}@{version}": partial(load, setup.data, root)
            for version, root in roots.items()
        },
        runtime={"cache_dir": options.cache, "accelerator": options.accelerator},
        weights=weight_files(options.weights),
        file_backbones=FROM_FILES,
        threads=options.threads,
    )
    printed = {run.id for run in needed(every, store) if store.outcome(run.id)}
    workers = Workers(job, options.jobs)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # shells disable Ctrl-C in background
    try:
        while workers.alive() and time.time() < end:
            time.sleep(1)
            for run in needed(every, store):
                if run.id not in printed and (record := store.outcome(run.id)):
                    printed.add(run.id)
                    result = record.get("result", {})
                    figure = (
                        f"{result['test_map']:.2f}, {result['seconds']:.0f} s"
                        if result
                        else record["error"]
                    )
                    print(f"{run.table}; {run.row}; {run.stage} {run.seed}; {figure}", flush=True)
    except KeyboardInterrupt:
        print("interrupted; unfinished runs keep their checkpoints", flush=True)
    finally:
        workers.stop()


def against(plan: Plan) -> str:
    """Return the row that the others of a table are compared with."""
    labels = [case.label for case in plan.cases]
    return next((label for label in ("gr", "k̂ ✓, v ✓, L ✓") if label in labels), labels[0])


def beside_reference(plan: Plan, store: RunStore, reference: Mapping[str, float]) -> str:
    """Return the first table next to the reference figures, in Markdown."""
    lines = ["| method | test mAP | reference | difference |", "| --- | --- | --- | --- |"]
    for run in plan.runs(store.outcome):
        record = store.outcome(run.id) or {}
        if "result" in record:
            own, other = record["result"]["test_map"], reference[run.row]
            lines.append(f"| {run.row} | {own:.2f} | {other:.2f} | {own - other:+.2f} |")
    return "\n".join(lines) + "\n"


def command_line(setup: Setup, about: str | None) -> None:
    """Run the command line of a plan.

    Args:
        about: help text.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", action="append", default=[], metavar="VERSION=DIR", help="folder of a version"
    )
    parser.add_argument(
        "--pixels", choices=setup.versions, help="of the tables; default: as in the overview"
    )
    parser.add_argument("--weights", action="append", default=[], metavar="FILE")
    parser.add_argument("--cache", type=Path, help="folder of decoded pictures")
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path(f"build/{setup.data}-plan"),
        help="folder of unfinished runs",
    )
    parser.add_argument("--results", type=Path, help=f"default: {setup.results.name}")
    parser.add_argument(
        "--also", type=Path, action="append", default=[], help="more folders for new results"
    )
    parser.add_argument("--plan", type=Path, help=f"the overview; default: {setup.overview.name}")
    parser.add_argument(
        "--rehearse", action="store_true", help="train tiny models, recorded in --scratch"
    )
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of each process on the CPU")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--retry", action="store_true", help="train failed runs again")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    home = options.scratch / "rehearsal" if options.rehearse else None
    options.results = options.results or (home / "records" if home else setup.results)
    options.plan = options.plan or (home / "plan.json" if home else setup.overview)
    stored = (
        json.loads(options.plan.read_text(encoding="utf-8")).get("pixels")
        if options.plan.exists()
        else None
    )
    first = options.data[0].partition("=")[0] if options.data else None
    version = options.pixels or stored or (first if first in setup.versions else setup.versions[-1])
    every = setup.plans(version)
    if home:
        every = [rehearsed(plan) for plan in every]
    kept = scored(every)
    store = RunStore(options.scratch, options.results, tuple(options.also), keep=False, scored=kept)
    if options.tables:
        for plan in every:
            print(markdown(table(collected(plan, store.outcome), against(plan))))
        print(beside_reference(every[0], store, setup.reference))
        return
    if options.retry:
        store.forget_failures(needed(every, store))
    try:
        if options.data:
            make(setup, every, store, options)
    finally:
        known = {
            "pixels": version,
            "reference": dict(setup.reference),
            "to_come": to_come(every, store),
        }
        counts = write_overview(options.plan, needed(every, store), store, **known)
        print(", ".join(f"{number} {state}" for state, number in counts.items()))
        print(f"open, with final runs after trials: at most {cost(setup, every, store)}")
