"""The runs on VOC2012: the runs of all tables in one plan that can stop and resume anywhere.

python benchmarks/voc_plan.py             # plan.json and counts from the results; trains nothing
python benchmarks/voc_plan.py --tables    # the tables, in Markdown, from the results
python benchmarks/voc_plan.py --data jpeg88-448=DIR --weights FILE --minutes 8 --jobs 3 --also OUT

The last form trains runs. DIR is the folder that holds VOCdevkit; FILE holds the ImageNet weights
of tf_efficientnet_lite0 (for other backbones, write NAME=FILE). Each run is one small file in
benchmarks/results/voc2012-lite0; recorded runs are not repeated. Final runs of a table with trials
join the plan after its trials.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spml.analysis.sensitivity import STUDIES
from spml.bench.formats import markdown
from spml.bench.plan import Case, Plan, Run, distinct
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
COMMON = {
    **{
        "backbone": LITE0,
        "weights": "pretrained",
        "size": 448,
        "batch_size": 8,
        "epochs": 8,
        "flip": True,
    },
    **{"optimizer": "adam", "head_lr": 10.0},
}
LR = 5e-5
AT_LR = {**COMMON, "lr": LR}
# settings of the studied runs, which excludes trials
STUDIED = {name: AT_LR[name] for name in ("backbone", "lr", "head_lr", "batch_size", "epochs")}
RATES = Grid((2e-5, LR, 1e-4))
FRESH = (1, 2, 3)
PIXELS = ("original", "jpeg88-448")
TABLE_A = {
    **{"an": {}, "an_ls": {}, "focal": {}, "hill": {"variant": "gr"}, "ll_r": {"delta": 0.002}},
    **{"em": {"alpha": 0.2}, "gr": {"variant": "official"}, "full": {}},
}
REFERENCE = {  # of runs made before this project, lr 5e-5, one seed (GR: two)
    **{"an": 84.90, "an_ls": 85.97, "focal": 85.32, "hill": 86.65, "ll_r": 86.35},
    **{"em": 87.48, "gr": 87.44, "full": 88.81},
}
SWITCHES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as released": ({}, {}),
    "one schedule, t/T": ({"schedule": "paper"}, {}),
    "q1 = 0.01": ({"q1": 0.01}, {}),
    "b(0) of Assumption 1": ({"b": (-3.70, -2.0)}, {}),
    "as written": ({"variant": "paper"}, {}),
    "one learning rate": ({}, {"head_lr": 1.0}),
    "early stop": ({}, {"patience_drop": 2.0}),
}
# a query head is a transformer: ten times the rate of the backbone may be too much
QUERY_HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "smile at one rate": ("smile", {"head_lr": 1.0}),
    "smile, trained as published": ("smile", {"head_lr": 1.0, "lr": 1e-5, "epochs": 10}),
    "mime at one rate": ("mime", {"head_lr": 1.0}),
    "mime, trained as published": (
        "mime",
        {"optimizer": "adamax", "lr": 1e-4, "frozen_norm": True, "batch_size": 32, "epochs": 10},
    ),
    "an with a query head at one rate": ("an", {"head": "query", "head_lr": 1.0}),
    "gr with a query head at one rate": ("gr", {"head": "query", "head_lr": 1.0}),
}
ONE_RATE = {"smile": "smile at one rate", "mime": "mime at one rate"}  # a method, and its row
# from random weights, 5e-5 would hardly change anything in eight epochs
RANDOM = {"weights": "none", "lr": 5e-4}
BACKBONES: dict[str, dict[str, Any]] = {
    "Lite2": {"backbone": "tf_efficientnet_lite2"},
    "MobileNetV2": {"backbone": "mobilenetv2_100"},
    "ResNet-50, random weights": {"backbone": "resnet50", **RANDOM},
    "ViT-Ti/16 at 224 px, random weights": {
        "backbone": "vit_tiny_patch16_224",
        "size": 224,
        **RANDOM,
    },
}


def plans(pixels: str) -> list[Plan]:
    """Return all tables, in the order in which they are filled.

    Args:
        pixels: version of the images.
    """
    data = f"voc@{pixels}"
    methods = [*paper_methods(), "full"]
    return [
        Plan("Table A", data, method_cases(list(TABLE_A), TABLE_A), (0,), AT_LR),
        Plan(
            "below an on digits",
            data,
            method_cases(["crisp", "gce", "sce", "taylor_ce"], {}),
            (0,),
            AT_LR,
        ),
        *(Plan(f"pixels, {name}", data, _pixels(name), FRESH, AT_LR) for name in ("an", "gr")),
        Plan("Table B", data, method_cases(methods, {}), FRESH, COMMON, RATES),
        Plan("query heads", data, _query_heads(), (0,), AT_LR),
        Plan(
            "Table 3",
            data,
            ablation_cases(round(1 / BENCHMARKS["voc"].paper.positives, 4)),
            FRESH,
            COMMON,
            RATES,
        ),
        Plan(
            "switches",
            data,
            tuple(Case(row, "gr", *options) for row, options in SWITCHES.items()),
            FRESH,
            AT_LR,
        ),
        *(Plan(f"sensitivity, {study.name}", data, study.cases, (0,), AT_LR) for study in STUDIES),
        *(
            Plan(f"backbone, {name}", data, _others(own), FRESH, AT_LR)
            for name, own in BACKBONES.items()
        ),
    ]


def _pixels(method: str) -> tuple[Case, ...]:
    return tuple(Case(f"{method}, {pixels}", method, data=f"voc@{pixels}") for pixels in PIXELS)


def _query_heads() -> tuple[Case, ...]:
    """Return rows with query heads, and linear heads for comparison."""
    heads = tuple(Case(row, method, settings=own) for row, (method, own) in QUERY_HEADS.items())
    return (Case("gr", "gr"), Case("an", "an"), *heads)


def _others(settings: dict[str, Any]) -> tuple[Case, ...]:
    return tuple(Case(method, method, settings=settings) for method in ("gr", "an", "em", "full"))


def needed(every: Sequence[Plan], store: RunStore) -> list[Run]:
    return distinct([run for plan in every for run in plan.runs(store.outcome)])


def to_come(every: Sequence[Plan], store: RunStore) -> dict[str, int]:
    """Count the final runs of each table whose settings are not chosen yet."""
    open_rows = {
        plan.table: sum(plan.undecided(case, store.outcome) for case in plan.cases)
        for plan in every
    }
    return {
        plan.table: open_rows[plan.table] * len(plan.seeds)
        for plan in every
        if open_rows[plan.table]
    }


def scored(every: Sequence[Plan]) -> frozenset[str]:
    """Return the runs whose scores figures and calibration need: AN and GR, with all seeds."""
    selected = [plan for plan in every if plan.table.partition(",")[0] in ("Table A", "pixels")]
    runs = [
        run for plan in selected for run in plan.runs(lambda name: None) if run.data == plan.data
    ]
    return frozenset(run.id for run in runs if run.method in ("an", "gr"))


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


def make(every: Sequence[Plan], store: RunStore, options: argparse.Namespace) -> None:
    """Train runs in parallel until all are done or time is up; the next call resumes the rest."""
    end = time.time() + 60 * options.minutes
    roots = dict(word.split("=", 1) for word in options.data)
    job = Job(
        every,
        store,
        {f"voc@{pixels}": partial(load, "voc", root) for pixels, root in roots.items()},
        runtime={"cache_dir": options.cache, "accelerator": options.accelerator},
        weights=weight_files(options.weights),
        file_backbones=frozenset({LITE0, "tf_efficientnet_lite2", "mobilenetv2_100"}),
        threads=options.threads,
    )
    printed = {run.id for run in needed(every, store) if store.outcome(run.id)}
    workers = Workers(job, options.jobs)
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
    finally:
        workers.stop()


def against(plan: Plan) -> str:
    """Return the row that the others of a table are compared with."""
    labels = [case.label for case in plan.cases]
    return next((label for label in ("gr", "k̂ ✓, v ✓, L ✓") if label in labels), labels[0])


def beside_reference(plan: Plan, store: RunStore) -> str:
    """Return Table A next to the reference figures, in Markdown."""
    lines = ["| method | test mAP | reference | difference |", "| --- | --- | --- | --- |"]
    for run in plan.runs(store.outcome):
        record = store.outcome(run.id) or {}
        if "result" in record:
            own, other = record["result"]["test_map"], REFERENCE[run.method]
            lines.append(f"| {run.method} | {own:.2f} | {other:.2f} | {own - other:+.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", action="append", default=[], metavar="PIXELS=DIR", help="original or jpeg88-448"
    )
    parser.add_argument("--pixels", choices=PIXELS, help="of the tables; default: as in plan.json")
    parser.add_argument("--weights", action="append", default=[], metavar="FILE")
    parser.add_argument("--cache", type=Path, help="folder of decoded pictures")
    parser.add_argument(
        "--scratch", type=Path, default=Path("build/voc-plan"), help="folder of unfinished runs"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results" / "voc2012-lite0")
    parser.add_argument(
        "--also", type=Path, action="append", default=[], help="more folders for new results"
    )
    parser.add_argument("--plan", type=Path, default=HERE / "plan.json")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of each process on the CPU")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--retry", action="store_true", help="train failed runs again")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    stored = (
        json.loads(options.plan.read_text(encoding="utf-8")).get("pixels")
        if options.plan.exists()
        else None
    )
    first = options.data[0].partition("=")[0] if options.data else "jpeg88-448"
    pixels = options.pixels or stored or first
    every = plans(pixels)
    store = RunStore(
        options.scratch, options.results, tuple(options.also), keep=False, scored=scored(every)
    )
    if options.tables:
        for plan in every:
            print(markdown(table(collected(plan, store.outcome), against(plan))))
        print(beside_reference(every[0], store))
        return
    if options.retry:
        store.forget_failures(needed(every, store))
    try:
        if options.data:
            make(every, store, options)
    finally:
        about = {"pixels": pixels, "reference": REFERENCE, "to_come": to_come(every, store)}
        counts = write_overview(options.plan, needed(every, store), store, **about)
        print(", ".join(f"{number} {state}" for state, number in counts.items()))


if __name__ == "__main__":
    main()
