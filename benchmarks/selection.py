"""Which criterion orders models as complete labels would, if it sees observed labels only?

python benchmarks/selection.py train --data DIR --out OUT [--gpu 6] [--cpu 6] [--minutes 20]
python benchmarks/selection.py pack --data DIR --out OUT --to FILES    # one .npz for each set

DIR holds what `benchmarks/stage.py` writes: voc/, coco/, and features.npz in each. A set is one of
SETS; its pool holds METHODS at three learning rates. Each model keeps its scores of the held-out
rows, where a criterion sees the observed labels, and its mAP on complete test labels, which judges
it. Stages of a set: `portfolio` (every candidate at the usual rate, with weight averaging), `plain`
(the same without), `race` (short schedules on each half of the rows, scored on the other half) and
`pool` (the other rates). Recorded models are kept, so that an interrupted study resumes.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spml.train.resolve import GR_FLAT, GR_STEEP

if TYPE_CHECKING:
    from spml.data import Experiment
    from spml.runs.settings import Settings

LITE0 = "tf_efficientnet_lite0"
NARROW: dict[str, Any] = {**GR_FLAT, "mu": [0.5, 0.1], "sigma": [2.0, 0.1], "w": [0.0, 2.5]}
PORTFOLIO: dict[str, tuple[str, dict[str, Any]]] = {
    "an": ("an", {}),
    "wan": ("wan", {}),
    "ll_r": ("ll_r", {}),
    "epr 1.5": ("epr", {"expected_positives": 1.5}),
    "epr 3": ("epr", {"expected_positives": 3.0}),
    "em .2": ("em", {"alpha": 0.2}),
    "em .05": ("em", {"alpha": 0.05}),
    "gr voc": ("gr", GR_FLAT),
    "gr coco": ("gr", GR_STEEP),
    "gr narrow": ("gr", NARROW),
}
METHODS = {
    **PORTFOLIO,
    "an_ls": ("an_ls", {}),
    "ll_r .02": ("ll_r", {"delta": 0.02}),
    "em .01": ("em", {"alpha": 0.01}),
    "hill": ("hill", {}),
    "gce": ("gce", {}),
}
RATES = (1 / 3, 1.0, 3.0)  # times the default of the data
WEIGHTS = "lite0.safetensors"  # of LITE0, by timm's names
EMA = 0.999
SHORT = (1, 2, 4)  # epochs of the short schedules


@dataclass(frozen=True)
class Set:
    """Items of a source, how their positives are observed, and how models are trained on them."""

    source: str
    kind: str = "pictures"
    rows: int = 10**9  # of the training list, validation rows included
    test: int = 10**9
    observe: str = "uniform"
    size: int | None = None
    weights: str | None = None
    epochs: int = 10


SETS = {
    "digits": Set("digits", "digits"),
    "digits-many": Set("digits-many", "digits"),
    "voc-features": Set("voc", "features", epochs=15),
    "voc-features-20%": Set("voc", "features", rows=1144, epochs=15),
    "voc-features-10%": Set("voc", "features", rows=572, epochs=15),
    "voc-features-frequency": Set("voc", "features", observe="frequency", epochs=15),
    "voc-features-rare": Set("voc", "features", observe="frequency:gamma=-1", epochs=15),
    "coco-features": Set("coco", "features", rows=8000, test=3000, epochs=15),
    "coco-features-frequency": Set(
        "coco", "features", rows=4000, test=3000, observe="frequency", epochs=15
    ),
    "voc-448": Set("voc", size=448),
    "voc-20%": Set("voc", size=448, rows=1144, test=3000),
    "voc-10%": Set("voc", size=448, rows=572, test=3000),
    "voc-224": Set("voc", size=224),
    "voc-224-frequency": Set("voc", size=224, observe="frequency"),
    "voc-random": Set("voc", size=224, weights="none"),
    "coco-22k": Set("coco", size=256),
    "coco-3000": Set("coco", size=256, rows=3000, test=3000),
}
ON_GPU = (
    *[("voc-20%", stage) for stage in ("portfolio", "race", "plain")],
    *[("coco-3000", stage) for stage in ("portfolio", "race", "plain")],
    *[("voc-10%", stage) for stage in ("portfolio", "race")],
    *[("voc-224", stage) for stage in ("portfolio", "race")],
    *[("voc-random", "portfolio"), ("voc-20%", "pool"), ("coco-3000", "pool"), ("voc-10%", "pool")],
    *[("voc-448", "portfolio"), ("voc-random", "race")],
    *[("voc-10%", "plain"), ("voc-224", "plain"), ("voc-224", "pool"), ("voc-random", "pool")],
)
ON_CPU = tuple(
    (name, stage)
    for stages in (("portfolio", "race"), ("pool",))
    for name, each in SETS.items()
    if each.kind != "pictures"
    for stage in stages
)


@dataclass(frozen=True)
class Task:
    """One model: of a set, a candidate at a rate, over some epochs, on all rows or on a half."""

    set: str
    candidate: str
    rate: float = 1.0
    epochs: int = 0
    ema: bool = True
    half: int | None = None

    @property
    def name(self) -> str:
        """The file name, without folder and ending."""
        words = [self.candidate, f"x{self.rate:.2g}", f"e{self.epochs}"]
        words += [] if self.ema else ["plain"]
        words += [] if self.half is None else [f"half{self.half}"]
        return " ".join(words)


def tasks(name: str, stage: str) -> Iterator[Task]:
    """Yield the models of a stage of a set."""
    epochs = SETS[name].epochs
    if stage == "pool":
        for label in METHODS:
            for rate in RATES:
                if rate != 1.0 or label not in PORTFOLIO:
                    yield Task(name, label, rate, epochs)
    elif stage == "race":
        for short in SHORT:
            for label in PORTFOLIO:
                for half in (0, 1):
                    yield Task(name, label, epochs=short, half=half)
    else:
        for label in PORTFOLIO:
            yield Task(name, label, epochs=epochs, ema=stage == "portfolio")


@cache
def experiment_of(name: str, data: Path) -> Experiment:
    """Load a set; its positives are observed as SETS says."""
    import numpy as np

    from spml.data import load

    chosen = SETS[name]
    if chosen.kind == "digits":
        return load(chosen.source)
    file = "features.npz" if chosen.kind == "features" else "table.csv"
    experiment = load(data / chosen.source / file, labels="complete", observe=chosen.observe)
    test = experiment.test
    assert test is not None
    rng = np.random.default_rng(1)
    share = min(1.0, chosen.rows / len(experiment.observed))
    train, val = (
        np.sort(rng.permutation(rows)[: round(share * len(rows))])
        for rows in (experiment.train_rows, experiment.val_rows)
    )
    rows = np.arange(min(chosen.test, len(test)))
    return replace(experiment, train_rows=train, val_rows=val, test=test.take(rows))


def half_of(experiment: Experiment, half: int | None) -> Experiment:
    """Train on one half of the training and validation rows and validate on the other."""
    import numpy as np

    if half is None:
        return experiment
    rows = np.concatenate([experiment.train_rows, experiment.val_rows])
    shuffled = np.random.default_rng(2).permutation(np.sort(rows))
    parts = [np.sort(part) for part in np.array_split(shuffled, 2)]
    return replace(experiment, train_rows=parts[half], val_rows=parts[1 - half])


def settings_of(task: Task, experiment: Experiment, data: Path, device: str) -> Settings:
    """Settings of a model."""
    import numpy as np

    from spml.train import Settings
    from spml.train.resolve import resolve

    chosen = SETS[task.set]
    base = Settings(
        method=METHODS[task.candidate][0],
        epochs=task.epochs,
        selection="observed",
        accelerator=device,
        ema=EMA if task.ema else 0.0,
    )
    if chosen.kind == "features":
        batch = int(np.clip(len(experiment.train_rows) // 50, 16, 128))
        base = replace(base, batch_size=batch, lr=3e-4)
    if chosen.kind == "pictures":
        base = replace(
            base,
            **{
                "backbone": LITE0,
                "size": chosen.size,
                "weights": chosen.weights or str(data / WEIGHTS),
            },
            compile="graphs" if device == "cuda" else "none",
        )
    return replace(base, lr=resolve(base, experiment).lr * task.rate)


def train(task: Task, data: Path, folder: Path, device: str, caches: dict[str, Any]) -> None:
    """Train a model and write its scores."""
    import numpy as np

    from spml.data.images.cache import open_cache
    from spml.runs.run import Run
    from spml.train import fit

    whole = experiment_of(task.set, data)
    if SETS[task.set].kind == "pictures" and task.set not in caches:
        caches.clear()
        rows = np.sort(np.concatenate([whole.train_rows, whole.val_rows]))
        tables = [whole.observed.take(rows), whole.test]
        where = "device" if device == "cuda" else "memory"
        cached = {"folder": folder / "cache", "device": device}
        caches[task.set] = open_cache(tables, SETS[task.set].size, where, **cached)
    experiment = half_of(whole, task.half)
    out = folder / f"run-{os.getpid()}"
    result = fit(
        experiment,
        settings_of(task, experiment, data, device),
        out,
        options=METHODS[task.candidate][1],
        overwrite=True,
        quiet=True,
        cache=caches.get(task.set),
    )
    run = Run(out)
    truth = experiment.complete
    assert truth is not None
    complete = truth.rows(experiment.val_rows)
    from spml.metrics import mean_average_precision

    epochs = range(1, task.epochs + 1)
    scores = {epoch: run.scores("val", epoch) for epoch in epochs}
    own = {
        "val": scores[result["best_epoch"]].astype(np.float16),
        "last": scores[task.epochs].astype(np.float16),
        "best_epoch": result["best_epoch"],
        "test_map": result["test_map"],
        "complete": [100 * mean_average_precision(scores[epoch], complete) for epoch in epochs],
        "figures": [line["val_map"] for line in run.history],
        "seconds": result["seconds"],
    }
    target = folder / task.set / f"{task.name}.npz"
    temporary = target.with_suffix(".part.npz")
    np.savez_compressed(temporary, **own)
    temporary.replace(target)
    message = f"{task.set}: {task.name}: {result['test_map']:.2f} in {result['seconds']:.1f} s"
    print(message, flush=True)


def work(device: str, queue: list[Task], data: Path, folder: Path, deadline: float) -> None:
    """Train models that no other worker has claimed, until the deadline."""
    import torch

    torch.set_num_threads(1)
    caches: dict[str, Any] = {}
    for task in queue:
        if time.time() > deadline:
            return
        place = folder / task.set
        place.mkdir(parents=True, exist_ok=True)
        if (place / f"{task.name}.npz").exists():
            continue
        try:
            os.close(os.open(place / f"{task.name}.claim", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        try:
            train(task, data, folder, device, caches)
        except Exception as error:  # one model that fails must not stop the study
            print(f"{task.set}: {task.name}: {type(error).__name__}: {error}", flush=True)
            (place / f"{task.name}.claim").unlink()
        finally:
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()


def start(options: argparse.Namespace) -> None:
    """Start the workers and wait for them."""
    started = {name for name, _ in (ON_GPU if options.gpu else ON_CPU)}
    for claim in options.out.glob("*/*.claim"):
        if claim.parent.name in started:
            claim.unlink()
    deadline = time.time() + 60 * options.minutes
    context = multiprocessing.get_context("spawn")
    workers = []
    gpu = [(part, device_stage) for part, device_stage in ON_GPU if part in options.sets]
    cpu = [(part, device_stage) for part, device_stage in ON_CPU if part in options.sets]
    for device, count, stages in (("cuda", options.gpu, gpu), ("cpu", options.cpu, cpu)):
        queue = [task for name, stage in stages for task in tasks(name, stage)]
        for _ in range(count):
            arguments = (options.device or device, queue, options.data, options.out, deadline)
            workers.append(context.Process(target=work, args=arguments))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def pack(options: argparse.Namespace) -> None:
    """Write all recorded models of each set into one file, with the labels of its rows."""
    import numpy as np

    options.to.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        files = sorted((options.out / name).glob("*.npz"))
        if not files:
            continue
        whole = experiment_of(name, options.data)
        entries: dict[str, Any] = {}
        for half in (None, 0, 1):
            experiment = half_of(whole, half)
            key = "" if half is None else f"half{half}/"
            assert experiment.complete is not None
            entries[f"{key}observed"] = experiment.observed.rows(experiment.val_rows)
            entries[f"{key}complete"] = experiment.complete.rows(experiment.val_rows)
        for file in files:
            with np.load(file) as stored:
                entries |= {f"models/{file.stem}/{key}": stored[key] for key in stored}
        np.savez_compressed(options.to / f"{name}.npz", **entries)
        print(f"{name}: {len(files)} models", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("train", "pack", "clean", "count"))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("build/selection"))
    parser.add_argument("--to", type=Path, default=Path("build/packed"))
    parser.add_argument("--gpu", type=int, default=6, help="workers on the GPU")
    parser.add_argument("--cpu", type=int, default=6, help="workers on the CPU")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="device of all workers")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    options = parser.parse_args()
    if options.command == "train":
        start(options)
    elif options.command == "pack":
        pack(options)
    elif options.command == "clean":
        shutil.rmtree(options.out / "cache", ignore_errors=True)
    else:
        print(json.dumps({name: len([*options.out.glob(f"{name}/*.npz")]) for name in SETS}))


if __name__ == "__main__":
    main()
