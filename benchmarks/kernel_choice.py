"""Training with our GPU kernels, with torch's in bf16 and fp16, and with torch.compile.

python benchmarks/kernel_choice.py --out results.json [--budget 300]
python benchmarks/kernel_choice.py --out results.json --smoke           # tiny, also on a CPU

Pictures are random and on the device from the start, so that nothing is decoded. An experiment is a
run of EfficientNet-Lite0 as `spml train` does it, on as many pictures as VOC2012 has: all epochs
with validation and checkpoints, then the test. Its preparation is what happens once: recording or
compiling the step, the first steps, and loading kernels for scoring. A step is timed in turns with
a step by our kernels. The file is written after each measurement; a measurement that would not end
within the budget is left out.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from common import Step, clocked, environment, turns
from made_up import VOC, Warm, labelled
from throughput import LR, set_back, spml_step
from torch import Tensor

from spml.files import write_text
from spml.model.graphs import FastForward
from spml.train import Settings, fit
from spml.train.loop import Training
from spml.train.step import Updater

FIRST = 4  # steps until a step is compiled, recorded and replayed
OURS = "bf16, graphs, our kernels"
BF16 = {"precision": "bf16-mixed", "fused_norm": False}
FP16 = {"precision": "16-mixed", "fused_norm": False}
RECORDED = {
    OURS: {"precision": "bf16-mixed", "compile": "graphs"},
    "bf16, graphs": {**BF16, "compile": "graphs"},
    "fp16, graphs": {**FP16, "compile": "graphs"},
}
MODES = {"bf16, compiled, graphs": "reduce-overhead", "bf16, compiled": "default"}
COMPILED = {way: {**BF16, "compile": "compile"} for way in MODES}
SEARCHED = {f"{way}, cuDNN's search": RECORDED[way] for way in list(RECORDED)[1:]}
WAYS: dict[str, dict[str, Any]] = {**RECORDED, **COMPILED, **SEARCHED}


class Sizes(NamedTuple):
    """What is measured: the first backbone and batch size are those of the experiment."""

    count: int = sum(VOC.values())
    epochs: int = 8
    backbones: tuple[str, str] = ("tf_efficientnet_lite0", "resnet50")
    batches: tuple[int, int] = (16, 64)
    size: int = 448
    turns: float = 2.0  # seconds for timing a step in turns with ours
    at_once: int = 256  # pictures in the steps that are timed together


class Job(NamedTuple):
    """A measurement, an "experiment" or a "step", and the seconds it may take."""

    kind: str
    backbone: str
    batch: int
    way: str
    expected: float


def jobs(sizes: Sizes) -> list[Job]:
    """Return the measurements in order of importance."""
    (main, other), (small, large) = sizes.backbones, sizes.batches
    both = [(main, small), (other, small)]
    every = [*both, (main, large), (other, large)]
    replayed, compiled = MODES
    todo = [Job("experiment", main, small, way, 40) for way in RECORDED]
    todo.append(Job("experiment", main, small, replayed, 80))
    todo += [Job("step", *pair, way, 12) for pair in every for way in RECORDED]
    todo += [Job("step", *pair, way, 50) for way in COMPILED for pair in both]
    todo += [Job("step", *pair, way, 12) for pair in both for way in SEARCHED]
    todo += [Job("step", *pair, replayed, 60) for pair in every[2:]]
    return [*todo, Job("experiment", main, small, compiled, 70)]


@contextmanager
def run_by(way: str, row: dict[str, Any]) -> Iterator[None]:
    """Apply what settings cannot say about a way, and record in `row` how the step is run."""
    compiler, prepare = torch.compile, FastForward.prepare

    def compiled(module: Any, *, mode: str | None, dynamic: bool) -> Any:
        if not torch.cuda.is_available():  # a C++ compiler would take minutes
            return compiler(module, backend="aot_eager", dynamic=dynamic)
        return compiler(module, mode=MODES[way], dynamic=dynamic)

    def noted(forward: FastForward, x: Tensor) -> None:
        first = forward.shape is None
        prepare(forward, x)
        if first:
            how = "eager" if forward.fast is None else forward.how
            row["run_as"] = "our kernels" if how == "graphs" and forward.fused else how

    with set_back(), patch.object(torch, "compile", compiled):
        torch.backends.cudnn.benchmark = way in SEARCHED
        with patch.object(FastForward, "prepare", noted):
            yield


class Bench:
    """Measures experiments and steps on one device; run folders are written to `folder`."""

    def __init__(self, sizes: Sizes, device: str, folder: Path) -> None:
        self.sizes, self.device, self.folder = sizes, device, folder
        self.experiment = labelled(folder, sizes.count)
        assert self.experiment.test is not None
        shape = len(self.experiment.test), sizes.size, sizes.size, 3  # the longest table
        pixels = torch.randint(256, shape, dtype=torch.uint8, device=device)
        self.cache: Any = Warm(pixels)
        self.ours: tuple[str, int, Step] | None = None  # backbone, batch size, step by our kernels

    def settings(self, backbone: str, batch: int, way: str, **more: Any) -> Settings:
        chosen = {"epochs": self.sizes.epochs, **WAYS[way], **more}
        if self.device == "cpu":
            chosen["precision"] = "32-true"
        sizes = {"backbone": backbone, "batch_size": batch, "size": self.sizes.size}
        where = {"accelerator": self.device, "cache_dir": self.folder / "cache"}
        return Settings(weights="none", lr=LR, **sizes, **where, **chosen)

    def warm_up(self) -> None:
        """Create the context and load libraries, which the first run would do otherwise."""
        small, eager = labelled(self.folder, 10 * self.sizes.batches[0]), {"compile": "none"}
        for way in SEARCHED:
            main = self.sizes.backbones[0], self.sizes.batches[0]
            settings = self.settings(*main, way, **{**eager, "epochs": 1})
            fit(small, settings, self.folder / f"warm {way}", quiet=True, cache=self.cache)

    def measure(self, job: Job, row: dict[str, Any]) -> None:
        """Add the figures of a measurement to `row`."""
        if self.ours and self.ours[:2] != (job.backbone, job.batch):
            self.ours = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if job.kind == "experiment":
            with run_by(job.way, row):
                self._experiment(job, row)
            return
        if self.ours is None:
            with run_by(OURS, row):
                self.ours = job.backbone, job.batch, self._step(job, OURS, row)
        steps = {OURS: self.ours[2]}
        with run_by(job.way, row):  # its end resets the compiler
            if job.way != OURS:
                steps[job.way] = self._step(job, job.way, row)
            count = max(1, self.sizes.at_once // job.batch)
            blocks = {way: several(step, count) for way, step in steps.items()}
            times = turns(blocks, self.device, self.sizes.turns)
        row["seconds"] = statistics.median(times[job.way]) / count
        row["quartiles"] = [value / count for value in statistics.quantiles(times[job.way], n=4)]
        row["seconds_of_ours"] = statistics.median(times[OURS]) / count

    def _experiment(self, job: Job, row: dict[str, Any]) -> None:
        """Run an experiment, and clock what happens once in it."""
        spent: dict[str, list[float]] = {"record": [], "first": [], "score": []}
        prepared, first, scored = spent.values()
        validate = clocked(Training._validate, scored, self.sizes.epochs + 1)
        settings = self.settings(job.backbone, job.batch, job.way)
        out, began = self.folder / f"run {job.way}", time.perf_counter()
        with (
            patch.object(FastForward, "prepare", clocked(FastForward.prepare, prepared, 1)),
            patch.object(Updater, "update", clocked(Updater.update, first, FIRST)),
            patch.object(Training, "_validate", validate),
        ):
            result = fit(self.experiment, settings, out, quiet=True, cache=self.cache)
        row["seconds"] = time.perf_counter() - began
        row["validation"] = statistics.median(scored[1:])
        row["preparation"] = sum(prepared) + sum(first) + scored[0] - row["validation"]
        row["without_preparation"] = row["seconds"] - row["preparation"]
        row |= {name: result[name] for name in ("images_per_second", "test_map")}

    def _step(self, job: Job, way: str, row: dict[str, Any]) -> Step:
        """Return a step after its first calls."""
        spent: list[float] = []
        step, *_ = spml_step(self.experiment, self.settings(job.backbone, job.batch, way))
        several(clocked(step, spent, FIRST), FIRST)()
        row["preparation"] = sum(spent)
        return step


def several(step: Step, count: int) -> Step:
    return lambda: [step() for _ in range(count)]


def main() -> None:
    began = time.perf_counter()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="write the figures to this file")
    parser.add_argument("--budget", type=float, default=300, help="seconds for everything")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes; figures mean nothing")
    options = parser.parse_args()
    tiny = Sizes(60, 2, ("test_efficientnet", "test_resnet"), (4, 8), 64, 0.1, 8)
    sizes = tiny if options.smoke else Sizes()
    rows: list[dict[str, Any]] = []
    content = {"environment": environment(), "asked": sizes._asdict(), "rows": rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": f"{name}/a", "TRITON_CACHE_DIR": f"{name}/b"}
        bench = Bench(sizes, options.device, Path(name))
        bench.warm_up()
        content["warm_up"] = time.perf_counter() - began
        for job in jobs(sizes):
            row: dict[str, Any] = {**job._asdict()}
            rows.append(row)
            before = time.perf_counter()
            if before - began + job.expected > options.budget:
                row["error"] = "left out: over the budget"
            else:
                try:
                    bench.measure(job, row)
                except Exception as error:  # the others are still worth measuring
                    row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            row["wall"] = time.perf_counter() - before
            write_text(options.out, json.dumps(content, indent=1) + "\n")
            print(f"{before - began:.0f} s: {line(row)}", flush=True)
    print(*map(line, rows), sep="\n")


def line(row: dict[str, Any]) -> str:
    name = f"{row['kind']:<11}{row['backbone']:<22}{row['batch']:>3} {row['way']:<30}"
    if "error" in row:
        return f"{name}{row['error']}"
    other = row.get("without_preparation", row.get("seconds_of_ours"))
    label = "after preparation" if row["kind"] == "experiment" else "ours in turns"
    spent = f"{row['seconds']:>9.4f} s, {label} {other:.4f} s, prepared in {row['preparation']:.1f}"
    return f"{name}{spent} s, {row.get('run_as', 'as before')}"


if __name__ == "__main__":
    main()
