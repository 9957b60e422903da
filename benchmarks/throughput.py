"""Speed of spml relative to the reference loop on the same pictures, in one process.

python benchmarks/throughput.py --data FOLDER [--json results.json]     # FOLDER holds VOCdevkit
python benchmarks/throughput.py --fake 11540 --parts step,peak,profile  # generated pictures
python benchmarks/throughput.py --fake 60 --backbone test_resnet --size 64 --batch 8 --device cpu
python benchmarks/throughput.py --fake 11540 --set compile=compile --set eval_batch_size=256

The reference (reference_loop.py) trains like published code. Parts:

step        one training step on a batch on the device, after a warm-up; ten at a time on a GPU
epoch       from cold: from the call to the end of the first epoch's validation, with nothing
            decoded or compiled; from cache: a later epoch with its validation
evaluation  the test split at the end, from the last checkpoint to its figure
experiment  everything: decoding, compiling or capturing, all epochs with validation, test
peak        FLOP/s of bf16 matrix products, and the share of it that spml's step reaches
profile     device time of spml's step by kind of operation (GPU)

Files are read once before, so that neither side waits for the disk. The reference runs first;
process-wide settings of spml are restored afterwards. The cache of torch.compile is not used.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import reference_loop
import torch
from common import Step, environment, turns
from device_share import flops, host_seconds, peak, profile, waits
from made_up import fake

from spml.data import Experiment, load
from spml.data.images.decode import channels_first
from spml.train import Settings, fit

PARTS = ("step", "epoch", "evaluation", "experiment", "peak", "profile")
TARGETS = {
    "cuda": {"step": 2.5, "epoch from cache": 3.0, "whole experiment": 2.5},
    "cpu": {"epoch from cold": 1.0, "epoch from cache": 1.0},
}
LR = 1e-5
# steps timed together, so that the device waits for the host only if it does in training
AT_ONCE = {"cuda": 10}


def read_once(experiment: Experiment) -> None:
    """Read all files, so that they are in the page cache."""
    for table in (experiment.observed, experiment.test):
        if table is not None:
            with ThreadPoolExecutor() as pool:
                list(
                    pool.map(
                        lambda row, table=table: len(table.file(row).read_bytes()),
                        range(len(table)),
                    )
                )


@contextmanager
def set_back() -> Iterator[None]:
    """Restore the settings of torch afterwards, and free the memory of the device."""
    cudnn, precision = torch.backends.cudnn, torch.get_float32_matmul_precision()
    flags = {name: getattr(cudnn, name) for name in ("benchmark", "deterministic", "allow_tf32")}
    try:
        yield
    finally:
        for name, value in flags.items():
            setattr(cudnn, name, value)
        torch.set_float32_matmul_precision(precision)
        torch.compiler.reset()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def spml_step(
    experiment: Experiment, settings: Settings
) -> tuple[Step, Callable[..., Any], torch.Tensor, str]:
    """A step of the training loop, its classifier and batch, and its precision and mode."""
    from spml.model.graphs import FastForward
    from spml.train.device import Processes, make_fabric
    from spml.train.display import Display
    from spml.train.fitting import make_method, make_model
    from spml.train.resolve import method_options, resolve
    from spml.train.step import LossWatch, optimizer_for
    from spml.train.step import Step as LoopStep

    resolved = resolve(settings, experiment)
    options = method_options(resolved.method, experiment.name, {})
    method = make_method(experiment, resolved.method, options)
    classifier = make_model(experiment, resolved)
    fabric = make_fabric(resolved, unused=False)
    device = fabric.device
    method = method.to(device)
    model, optimizer = fabric.setup(classifier, optimizer_for(classifier, method, resolved))
    model.train()
    precision = str(fabric.strategy.precision.precision)
    forward = FastForward(
        model,
        classifier,
        resolved.compile,
        precision,
        detailed=False,
        report=Display().line,
    )
    step, watch = LoopStep(forward, method, resolved, Processes()), LossWatch(classifier)
    batch, size = resolved.batch_size, resolved.size
    rows = np.arange(batch)
    x = channels_first(torch.randint(256, (batch, size, size, 3), dtype=torch.uint8, device=device))
    observed = torch.from_numpy(experiment.observed.take(experiment.train_rows).rows(rows)).to(
        device
    )
    index = torch.from_numpy(rows).to(device)
    method.begin_epoch(1, resolved.epochs)

    def once() -> None:
        loss = step.loss(x, observed, index, rows, 1)
        optimizer.zero_grad(set_to_none=True)
        fabric.backward(loss)
        optimizer.step()
        watch.add(loss, step.logits, rows, "the benchmark")

    return once, classifier, x, f"{precision}, {resolved.compile}"


def reference_step(experiment: Experiment, settings: Settings, device: torch.device) -> Step:
    """A training step of the reference, on a batch on the device."""
    from spml.train.resolve import resolve

    resolved = resolve(settings, experiment)
    size, batch = resolved.size, resolved.batch_size
    reference = make_reference(experiment, settings, device)
    reference.model.train()
    x = torch.randn(batch, 3, size, size, device=device)
    observed = torch.from_numpy(
        experiment.observed.take(experiment.train_rows).rows(np.arange(batch))
    ).to(device)
    return lambda: reference.step(x, observed)


def make_reference(
    experiment: Experiment, settings: Settings, device: torch.device
) -> reference_loop.Reference:
    from spml.train.resolve import resolve

    resolved = resolve(settings, experiment)
    sizes = resolved.size, resolved.batch_size
    return reference_loop.Reference(
        len(experiment.classes), resolved.backbone, *sizes, resolved.lr, device
    )


def timed(step: Step, device: torch.device, budget: float) -> float:
    """Median seconds of a step."""
    count = AT_ONCE.get(device.type, 1)

    def several() -> None:
        for _ in range(count):
            step()

    return statistics.median(turns({"step": several}, device.type, budget)["step"]) / count


def run_spml(
    experiment: Experiment, settings: Settings, folder: Path, *, quiet: bool
) -> dict[str, Any]:
    """Run an experiment; the times of its epochs are those of the files it writes."""
    began, clock = time.time(), time.perf_counter()
    result = fit(experiment, settings, folder, quiet=quiet)
    whole = time.perf_counter() - clock
    # the first file is written before training
    ends = [path.stat().st_mtime for path in sorted((folder / "scores").glob("val-*.npz"))]
    saved = (folder / "last.ckpt").stat().st_mtime
    return {
        "cold": ends[1] - began,
        "epochs": np.diff(ends).tolist(),
        "evaluation": began + whole - max(saved, ends[-1]),
        "whole": whole,
        "test_map": result["test_map"],
        "images_per_second": result["images_per_second"],
    }


def measure(options: argparse.Namespace, experiment: Experiment, folder: Path) -> dict[str, Any]:
    device = torch.device(options.device)
    chosen = {
        "backbone": options.backbone,
        "weights": "none",
        "size": options.size,
        "epochs": options.epochs,
        "batch_size": options.batch,
        "lr": LR,
        "accelerator": device.type,
        "cache_dir": folder / "cache",
    }
    settings = Settings(**{"method": "gr", **chosen, **options.set})
    figures: dict[str, Any] = {"seconds": {}}
    if device.type == "cuda":  # create the context, which both need
        torch.nn.functional.conv2d(
            torch.randn(1, 3, 64, 64, device=device), torch.randn(8, 3, 3, 3, device=device)
        )
        torch.cuda.synchronize()
    if {"epoch", "evaluation", "experiment"} & set(
        options.parts
    ):  # first, while nothing is compiled
        measure_runs(options, experiment, settings, device, figures, folder)
    if {"step", "peak", "profile"} & set(options.parts):
        measure_step(options, experiment, settings, device, figures)
    both = {name: pair for name, pair in figures["seconds"].items() if None not in pair.values()}
    figures["ratios"] = {name: pair["reference"] / pair["spml"] for name, pair in both.items()}
    return figures


def measure_step(
    options: argparse.Namespace,
    experiment: Experiment,
    settings: Settings,
    device: torch.device,
    figures: dict[str, Any],
) -> None:
    reference = None
    if "step" in options.parts:
        with set_back():
            reference = timed(reference_step(experiment, settings, device), device, options.budget)
    with set_back():
        step, model, x, figures["step_run_as"] = spml_step(experiment, settings)
        ours = timed(step, device, options.budget)
        figures["seconds"]["step"] = {"reference": reference, "spml": ours}
        if "profile" in options.parts and device.type == "cuda":
            figures["host_seconds"], figures["waits"] = host_seconds(step), waits(step)
            figures["profile"], figures["kernels"] = profile(step, ours)
        if "peak" in options.parts:
            figures["peak_flops"], figures["step_flops"] = peak(device), flops(model, x)
            figures["share_of_peak"] = figures["step_flops"] / ours / figures["peak_flops"]
        del step, model


def measure_runs(
    options: argparse.Namespace,
    experiment: Experiment,
    settings: Settings,
    device: torch.device,
    figures: dict[str, Any],
    folder: Path,
) -> None:
    whole = "experiment" in options.parts
    read_once(experiment)
    epochs = options.epochs if whole else 1
    sizes = options.size, options.batch, LR, epochs
    with set_back():
        reference = reference_loop.run(experiment, options.backbone, *sizes, device)
    print(
        f"reference: {reference['whole']:.1f} s for {epochs} epochs and test",
        file=sys.stderr,
        flush=True,
    )
    ours_for = settings if whole else replace(settings, epochs=3)
    with set_back():
        ours = run_spml(experiment, ours_for, folder / "run", quiet=not options.verbose)
    print(
        f"spml: {ours['whole']:.1f} s for {ours_for.epochs} epochs and test",
        file=sys.stderr,
        flush=True,
    )
    figures["runs"] = {"reference": reference, "spml": ours}
    later = ours["epochs"][1:]
    if "epoch" in options.parts:
        figures["seconds"]["epoch from cold"] = {
            name: run["cold"] for name, run in figures["runs"].items()
        }
        figures["seconds"]["epoch from cache"] = {
            "reference": statistics.median(reference["epochs"]),
            "spml": statistics.median(later) if later else None,
        }
    if "evaluation" in options.parts and experiment.test is not None:
        figures["seconds"]["evaluation"] = {
            name: run["evaluation"] for name, run in figures["runs"].items()
        }
    if whole:
        figures["seconds"]["whole experiment"] = {
            name: run["whole"] for name, run in figures["runs"].items()
        }


def show(options: argparse.Namespace, experiment: Experiment, figures: dict[str, Any]) -> None:
    train, val = len(experiment.train_rows), len(experiment.val_rows)
    test = 0 if experiment.test is None else len(experiment.test)
    pictures = {
        "step": options.batch,
        "epoch from cold": train + val,
        "epoch from cache": train + val,
    }
    pictures |= {"evaluation": test, "whole experiment": options.epochs * (train + val) + test}
    print(
        f"{options.backbone}, {options.size} px, batch {options.batch}; "
        f"{train:,} train, {val:,} val, {test:,} test"
    )
    print(f"{'':<18}{'reference':>22}{'spml':>22}{'ratio':>9}")
    for name, pair in figures["seconds"].items():
        cells = [_cell(value, pictures[name]) for value in (pair["reference"], pair["spml"])]
        ratio = figures["ratios"].get(name)
        target = TARGETS.get(options.device.partition(":")[0], {}).get(name)
        shown = "" if ratio is None else f"{ratio:.2f}"
        short = (
            "" if target is None or ratio is None or ratio >= target else f"  NOT REACHED: {target}"
        )
        print(f"{name:<18}{cells[0]:>22}{cells[1]:>22}{shown:>9}{short}")
    if "step_run_as" in figures:
        print(f"spml's step: {figures['step_run_as']}")
    if "share_of_peak" in figures:
        step = figures["seconds"]["step"]["spml"]
        done = f"{figures['step_flops'] / 1e9:,.1f} GFLOP in {step * 1e3:.2f} ms"
        share, top = figures["share_of_peak"], figures["peak_flops"] / 1e12
        print(f"{done}: {share:.1%} of the {top:,.1f} TFLOP/s that bf16 matrix products reach")
    if "host_seconds" in figures:
        waiting = ", ".join(figures["waits"]) or "none"
        host = figures["host_seconds"] * 1e3
        print(f"the host launches a step in {host:.2f} ms; synchronisations: {waiting}")
    for title, spent in figures.get("profile", {}).items():
        print(
            f"  {title:<34}{spent * 1e3:>8.2f} ms{spent / figures['seconds']['step']['spml']:>8.1%}"
        )
    for name, spent in figures.get("kernels", []):
        print(f"    {spent * 1e3:>8.3f} ms  {name[:100]}")


def _cell(spent: float | None, pictures: int) -> str:
    if spent is None:
        return "-"
    time_spent = f"{spent * 1e3:.1f} ms" if spent < 1 else f"{spent:.1f} s"
    return f"{time_spent} ({pictures / spent:,.0f}/s)"


def setting(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE; the value is a Python literal, or else text."""
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def parts(text: str) -> list[str]:
    """Names of parts, separated by commas."""
    names = text.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    return names


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--data", type=Path, metavar="FOLDER", help="VOCdevkit, or the folder that holds it"
    )
    source.add_argument("--fake", type=int, metavar="N", help="generate N pictures")
    parser.add_argument("--backbone", default="resnet50", help="a timm model")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--parts", type=parts, default=list(PARTS), help=f"some of {','.join(PARTS)}"
    )
    parser.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of spml",
    )
    parser.add_argument(
        "--budget", type=float, default=5.0, help="seconds for timing the steps of each side"
    )
    parser.add_argument(
        "--work", type=Path, help="folder for pictures, cache and runs; a temporary one"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--verbose", action="store_true", help="show the output of training")
    options = parser.parse_args(arguments)
    options.set = dict(options.set)
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        folder = Path(name)
        os.environ |= {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }
        experiment = (
            load("voc", options.data) if options.data else fake(folder / "pictures", options.fake)
        )
        figures = measure(options, experiment, folder)
    show(options, experiment, figures)
    if options.json:
        asked = {
            name: value
            for name, value in vars(options).items()
            if name not in ("json", "work", "data", "verbose")
        }
        content = {"environment": environment(), "asked": asked, **figures}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return figures


if __name__ == "__main__":
    main()
