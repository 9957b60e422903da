"""Time per training step and extra memory of each method, relative to assume-negative.

python benchmarks/method_cost.py --json FILE    # on a GPU: resnet50 at 448 px, bf16
python benchmarks/method_cost.py --backbone tiny --size 32 --only gr --only role
python benchmarks/method_cost.py --also en '{"option": "value"}' --large    # more rows
python benchmarks/method_cost.py --json FILE --docs docs/methods.md         # writes the table

The classifier runs as in training, on a GPU from CUDA graphs. "Loss alone" is forward and backward
of the method on the logits, features and views of a training step. The whole step adds
augmentation, classifier, backward and all optimisers. Each alternates with `an` in the same
process, on a GPU five steps at a time so that the device does not wait for the host; ratios are
medians over the turns. "Between epochs" is begin_epoch, end_epoch and, if a method wants a pass,
take_scores over all items with random logits, without the classifier's work in the pass. Options
are those published for the data.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from common import Step as Turn
from common import environment, medians, put_table, seconds, turns
from lightning.fabric import Fabric
from torch import Tensor

from spml import losses
from spml.data import Experiment, LabelTable
from spml.data.images.decode import channels_first
from spml.files import write_json
from spml.model import Classifier
from spml.model.graphs import FastForward
from spml.runs.settings import Resolved
from spml.train import Settings
from spml.train.device import Processes
from spml.train.display import Display
from spml.train.resolve import check_model, resolve
from spml.train.step import Step, make_optimizer

SIZES = {"voc": (8, 20, 4574), "coco": (16, 80, 65665)}  # batch, classes, items to train on
EPOCH, EPOCHS = 8, 10  # by then every warm-up is over
LARGE = 2**31  # bytes of state above which --large is required
LR = 1e-5
AT_ONCE = {"cuda": 5, "cpu": 1}  # steps timed together


class Row(NamedTuple):
    method: str
    options: dict[str, Any]
    head: str | None = None


EXTRA = {"gr, head boostlu": Row("gr", {}, "boostlu")}


def published(row: Row, data: str) -> dict[str, Any]:
    return {**losses.preset(row.method, data).options, **row.options}


def settings_of(row: Row) -> Resolved:
    """Settings of a run on pictures."""
    table = LabelTable(["a", "b"], ["one", "two"], np.eye(2, dtype=np.int8))
    rows = np.arange(2)
    pictures = Experiment("my.csv", table.classes, table, None, rows, rows[:0], None, "observed")
    return resolve(Settings(method=row.method, epochs=EPOCHS, flip=True, lr=LR), pictures)


class Recorder:
    """Takes the place of a method and records the inputs of a step."""

    def __init__(self, method: losses.Method) -> None:
        self.needs, self.boxes = method.needs, torch.empty(0)

    def see(self, boxes: Tensor) -> None:
        self.boxes = boxes

    def __call__(self, logits: Tensor, observed: Tensor, **more: Any) -> Tensor:
        self.logits, self.observed, self.more = logits, observed, more
        return logits.sum()


class Case:
    """A method with its classifier and optimisers, as in training."""

    def __init__(self, row: Row, data: str, fabric: Fabric, backbone: str, size: int) -> None:
        self.batch, self.classes, self.items = SIZES[data]
        self.fabric, device = fabric, fabric.device
        torch.manual_seed(0)
        table = torch.zeros(self.items, self.classes, dtype=torch.int8)
        table[torch.arange(self.items), torch.randint(self.classes, (self.items,))] = 1
        known = {"items": self.items, "classes": self.classes, "observed": table}
        self.options = published(row, data)
        method = losses.create(
            row.method, **self.options, **(known if "items" in losses.needs(row.method) else {})
        )
        self.head = row.head or losses.head(row.method) or "linear"
        model = Classifier.build(backbone, self.classes, head=self.head)
        check_model(
            model, method, torch.zeros(1, 3, size, size, dtype=torch.uint8), row.method, backbone
        )
        self.settings = settings_of(row)
        groups = [{"params": list(part.parameters())} for part in (model.backbone, model.head)]
        self.model, optimizer = fabric.setup(
            model.train(), make_optimizer(groups, LR, self.settings)
        )
        self.method = method.to(device)
        own = method.parameter_groups(10 * LR)
        self.own = [make_optimizer(own, LR, self.settings)] if own else []
        method_optimizer = method.optimizer()
        self.own += [] if method_optimizer is None else [method_optimizer]
        self.optimizers = [optimizer, *self.own]
        how = "graphs" if device.type == "cuda" else "none"
        detailed, quiet = "features" in method.needs, Display(quiet=True)
        precision = str(fabric.strategy.precision.precision)
        self.forward = FastForward(
            self.model, model, how, precision, detailed=detailed, report=quiet.line
        )
        self.step = Step(self.forward, self.method, self.settings, Processes())
        self.x = channels_first(
            torch.randint(256, (self.batch, size, size, 3), dtype=torch.uint8)
        ).to(device)
        drawn = [
            np.sort(np.random.default_rng(n).permutation(self.items)[: self.batch])
            for n in range(8)
        ]
        self.batches = itertools.cycle(
            [(rows, torch.from_numpy(rows).to(device), table[rows].to(device)) for rows in drawn]
        )
        self.parameter_bytes = sum(p.numel() * p.element_size() for p in model.parameters())

    def whole(self, epoch: int = EPOCH) -> None:
        """A training step."""
        rows, index, observed = next(self.batches)
        loss = self.step.loss(self.x, observed, index, rows, epoch)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self.fabric.backward(loss)
        for optimizer in self.optimizers:
            optimizer.step()

    def own_step(self) -> None:
        """Step the optimisers of the method's parameters, on the gradients of the last step."""
        for optimizer in self.own:
            optimizer.step()

    def between(self) -> float:
        """Seconds from the last step of an epoch to the first step of the next."""
        logits = torch.randn(self.items, self.classes, device=self.fabric.device)
        for epoch in (EPOCH - 2, EPOCH - 1):  # the first is a warm-up
            self.method.begin_epoch(epoch, EPOCHS)
            for _ in range(2):
                self.whole(epoch)
            took = seconds(lambda epoch=epoch: self._turn(logits, epoch), self.fabric.device.type)
        return took

    def _turn(self, logits: Tensor, epoch: int) -> None:
        if self.method.wants_pass(epoch, EPOCHS):
            everything = torch.arange(self.items, device=logits.device)
            for index in everything.split(4 * self.batch):
                with torch.inference_mode():  # as in training
                    scores = logits[index]
                self.method.take_scores(scores, index)
        self.method.end_epoch(epoch, EPOCHS)
        self.method.begin_epoch(epoch + 1, EPOCHS)

    def loss_alone(self) -> Turn:
        """A function that computes loss and gradient from the inputs of a step."""
        rows, index, observed = next(self.batches)
        recorder = Recorder(self.method)
        step = Step(self.forward, recorder, self.settings, Processes())  # type: ignore[arg-type]
        step.loss(self.x, observed, index, rows, EPOCH)
        tensors = {
            "logits": recorder.logits,
            **{k: v for k, v in recorder.more.items() if v is not None},
        }
        leaves = {
            name: value.detach().clone().requires_grad_(value.is_floating_point())
            for name, value in tensors.items()
            if isinstance(value, Tensor)
        }
        rest = {name: value for name, value in tensors.items() if name not in leaves}

        def call() -> None:
            self.method.see(recorder.boxes)
            self.method.zero_grad(set_to_none=True)
            for leaf in leaves.values():
                leaf.grad = None
            self.method(observed=recorder.observed, **leaves, **rest).backward()

        return call


def built(
    row: Row, data: str, fabric: Fabric, arguments: argparse.Namespace
) -> tuple[Case, int | None]:
    """The case, and the peak GPU memory of building it and of three steps."""
    cuda = fabric.device.type == "cuda"
    before = 0
    if cuda:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    case = Case(row, data, fabric, arguments.backbone, arguments.size)
    case.method.begin_epoch(EPOCH, EPOCHS)
    for _ in range(3):
        case.whole()
    return case, torch.cuda.max_memory_allocated() - before if cuda else None


def compared(an: Turn, it: Turn, device: str, budget: float) -> dict[str, float]:
    """Seconds of a step of each, and the median over turns of their ratio."""
    times = turns({"an": several(an, device), "it": several(it, device)}, device, budget)
    each = {name: statistics.median(values) / AT_ONCE[device] for name, values in times.items()}
    return {
        **each,
        "ratio": statistics.median(b / a for a, b in zip(times["an"], times["it"], strict=True)),
    }


def several(step: Turn, device: str) -> Turn:
    def call() -> None:
        for _ in range(AT_ONCE[device]):
            step()

    return call


def measure(
    name: str,
    row: Row,
    data: str,
    base: tuple[Case, int | None],
    fabric: Fabric,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """One row of the table."""
    device, budget = fabric.device.type, arguments.budget
    case, peak = built(row, data, fabric, arguments)
    between = case.between()
    whole = compared(base[0].whole, case.whole, device, budget)
    own = (
        medians({"own": several(case.own_step, device)}, device, budget / 4)["own"]
        if case.own
        else 0.0
    )
    return {
        "data": data,
        "row": name,
        "method": row.method,
        "options": case.options,
        "head": case.head,
        "loss_seconds": compared(base[0].loss_alone(), case.loss_alone(), device, budget),
        "step_seconds": whole,
        "own_optimizer_seconds": own / AT_ONCE[device],
        "between_seconds": between,
        "steps": math.ceil(case.items / case.batch),
        "kept_bytes": losses.memory(row.method, case.items, case.classes, **case.options),
        "parameter_bytes": case.parameter_bytes - base[0].parameter_bytes,
        "peak_bytes": None if peak is None or base[1] is None else peak - base[1],
    }


def cells(row: dict[str, Any]) -> list[str]:
    """The cells of a row, all times relative to `an`."""
    step = row["step_seconds"]["an"]
    share = row["own_optimizer_seconds"] / step
    own = f", {share:.2f} of it its own optimiser" if share >= 0.005 else ""
    between = 100 * row["between_seconds"] / (step * row["steps"])
    memory = [_bytes(row[key]) for key in ("kept_bytes", "parameter_bytes", "peak_bytes")]
    return [
        row["row"],
        f"{row['loss_seconds']['ratio']:.2f}",
        f"{row['step_seconds']['ratio']:.2f}{own}",
        f"{between:.1f} %" if between >= 0.05 else "–",
        *memory,
    ]


HEADER = [
    "method",
    "loss alone ÷ an",
    "step ÷ an",
    "between epochs",
    "keeps",
    "more parameters",
    "more at the peak",
]


def tables(results: dict[str, Any]) -> str:
    """Markdown: a table for the first measured size of data."""
    data = next(data for data in SIZES if any(row["data"] == data for row in results["rows"]))
    batch, classes, items = SIZES[data]
    chosen = [row for row in results["rows"] if row["data"] == data]
    an = {
        part: statistics.median(row[f"{part}_seconds"]["an"] for row in chosen)
        for part in ("step", "loss")
    }
    lines = [
        f"{data}: batch {batch}, {classes} classes, {items:,} items. "
        f"`an` takes {an['step'] * 1e3:.2f} ms a step, "
        f"its loss alone {an['loss'] * 1e3:.2f} ms.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|---" * len(HEADER) + "|",
        *("| " + " | ".join(cells(row)) + " |" for row in chosen),
        "",
    ]
    where = results["environment"]
    model = f"{results['backbone']} at {results['size']} px, {results['precision']}"
    machine = f"torch {where['torch']}, {where['gpu'] or where['cpu']}"
    return "\n".join([*lines, f"{model}, {machine}."])


def _bytes(size: int | None) -> str:
    if size is None:
        return "not measured"
    unit = next(each for each in (1e9, 1e6, 1e3, 1) if abs(size) >= each or each == 1)
    name = {1e9: "GB", 1e6: "MB", 1e3: "kB", 1: "B"}[unit]
    return f"{size / unit:.3g} {name}" if size else "–"


def wanted(arguments: argparse.Namespace) -> dict[str, Row]:
    known = {**{name: Row(name, {}) for name in losses.names()}, **EXTRA}
    chosen = {name: known[name] for name in arguments.only or known if name != "an"}
    for method, text in arguments.also:
        options = json.loads(text)
        chosen[f"{method}, " + ", ".join(f"{key} {value}" for key, value in options.items())] = Row(
            method, options
        )
    return chosen


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    cuda = arguments.accelerator == "cuda"
    precision: Any = "bf16-mixed" if cuda else "32-true"
    fabric = Fabric(accelerator=arguments.accelerator, devices=1, precision=precision)
    results: dict[str, Any] = {
        "environment": environment(),
        "backbone": arguments.backbone,
        "size": arguments.size,
        "precision": precision,
        "rows": [],
    }
    print("time relative to an; " + "  ".join(HEADER))
    for data in arguments.data:
        base = built(Row("an", {}), data, fabric, arguments)
        for name, row in wanted(arguments).items():
            _, classes, items = SIZES[data]
            size = losses.memory(row.method, items, classes, **published(row, data))
            if size > LARGE and not arguments.large:
                print(f"{data:5} {name}: keeps {_bytes(size)}; give --large")
                continue
            results["rows"].append(measure(name, row, data, base, fabric, arguments))
            print(f"{data:5} " + "  ".join(cells(results["rows"][-1])), flush=True)
            if arguments.json:
                write_json(arguments.json, results)
    return results


def main() -> None:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accelerator", default="cuda" if cuda else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backbone", default="resnet50" if cuda else "tiny")
    parser.add_argument("--size", type=int, default=448 if cuda else 32)
    parser.add_argument("--data", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--only", action="append", default=[], choices=[*losses.names(), *EXTRA])
    parser.add_argument("--also", nargs=2, action="append", default=[], metavar=("METHOD", "JSON"))
    parser.add_argument(
        "--large", action="store_true", help="methods that keep more than 2 GiB too"
    )
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each figure")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--docs",
        type=Path,
        metavar="PAGE",
        help="write the table of --json there instead of measuring",
    )
    arguments = parser.parse_args()
    if arguments.docs is None:
        run(arguments)
    elif arguments.json is None:
        parser.error("--docs needs --json, the file to take figures from")
    else:
        put_table(arguments.docs, "method_cost", tables(json.loads(arguments.json.read_text())))


if __name__ == "__main__":
    main()
