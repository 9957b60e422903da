"""Whether decoding and model overlap in `spml predict`: each alone, then both, in one process and in turn.

python benchmarks/predict.py --root FOLDER [--count 300] [--size 448] [--json results.json]

Decoding alone makes the batches and does nothing with them; the model alone takes batches that are in memory; both is
what `spml predict` does, rows written to a file included. All three have the same threads: `--threads` decode, and on a
CPU the model has `--model-threads`. Where both have all cores of a CPU, each takes time from the other whatever the
program does; so the comparison gives the two as many threads together as there are cores. The ratio is that of the
best of several rounds, so that other programs on the machine count little.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common import environment

from spml.data.images.loader import Item
from spml.data.readers.folders import PICTURES
from spml.model import Classifier, ModelInfo
from spml.model.graphs import Replayed
from spml.model.scoring import score_stream
from spml.use.predict.predict import reader, scorer
from spml.use.predict.tagging import Rule
from spml.use.predict.writers import Predicted, writing

TARGET = 1.15


def build(backbone: str, weights: str, size: int, classes: int) -> tuple[Classifier, ModelInfo]:
    torch.manual_seed(0)
    how = {"kind": "pictures", "size": size, "upright": True, "features": None}
    info = ModelInfo([f"class {i}" for i in range(classes)], backbone, how, [0.5] * classes)
    return Classifier.build(backbone, classes, weights).eval().requires_grad_(False), info


def rounds(
    named: dict[str, Callable[[], object]], repeats: int, device: str
) -> dict[str, list[float]]:
    """Seconds of each, in turn; a round that is not counted comes first."""
    times: dict[str, list[float]] = {name: [] for name in named}
    for number in range(repeats + 1):
        for name, work in named.items():
            began = time.perf_counter()
            work()
            if device == "cuda":
                torch.cuda.synchronize()
            if number:
                times[name].append(time.perf_counter() - began)
    return times


def measure(
    files: list[Path], given: argparse.Namespace, device: str, folder: Path
) -> dict[str, list[float]]:
    model, info = build(given.backbone, given.weights, given.size, given.classes)
    ahead, score = (
        reader(info, given.batch_size, given.threads, device),
        scorer(model, info, device),
    )
    given.batch_size, given.threads = ahead.batch_size, ahead.threads
    items = [Item(str(file), file) for file in files]
    ready = list(ahead.batches(items))
    rule = Rule({})

    def both() -> None:
        fast = Replayed(score, device)
        with writing(folder / "out.csv", "csv", info.classes) as write:
            batches = ahead.batches(items, before=fast.prepare)
            for (logits, calibrated), group in score_stream(fast, batches, device):
                p = calibrated.sigmoid().numpy()
                tags = [
                    [info.classes[i] for i in row]
                    for row in rule.columns(logits.numpy(), calibrated.numpy(), info)
                ]
                write(Predicted([item.name for item in group], tags, p))

    def model_alone() -> None:
        fast = Replayed(score, device)
        fast.prepare(ready[0][0].shape)
        for _ in score_stream(fast, ready, device):
            pass

    named: dict[str, Callable[[], object]] = {
        "decoding alone": lambda: [None for _ in ahead.batches(items)],
        "model alone": model_alone,
        "both": both,
    }
    return rounds(named, given.repeats, device)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of pictures")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--weights", default="none", help="they do not change the time")
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--batch-size", type=int, help="default: that of spml predict")
    parser.add_argument(
        "--threads", type=int, help="that decode; default: all cores but those that the model needs"
    )
    parser.add_argument(
        "--model-threads", type=int, help="of the model on a CPU; all cores but one when not given"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="even where there is a GPU")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not given.cpu else "cpu"
    cores = len(os.sched_getaffinity(0))
    if device == "cpu":
        given.model_threads = given.model_threads or max(1, cores - 1)
        torch.set_num_threads(given.model_threads)
        given.threads = given.threads or max(1, cores - given.model_threads)
    files = sorted(file for file in given.root.rglob("*") if file.suffix.lower() in PICTURES)
    files = random.Random(0).sample(files, min(given.count, len(files)))
    with tempfile.TemporaryDirectory() as folder:
        times = measure(files, given, device, Path(folder))
    best = {name: min(values) for name, values in times.items()}
    ratio = best["both"] / max(best["decoding alone"], best["model alone"])
    used = f"{given.threads} threads decode" + (
        f", {given.model_threads} for the model" if device == "cpu" else ""
    )
    print(
        f"{len(files)} pictures at {given.size} px, {given.backbone} on {device}; {cores} cores, {used}; pictures/s:"
    )
    for name, seconds in best.items():
        print(f"  {name:<16}{len(files) / seconds:>10,.1f}")
    print(
        f"  both / the slower alone: {ratio:.3f} (target {TARGET}){'' if ratio <= TARGET else '  NOT REACHED'}"
    )
    if given.json:
        about = {name: str(v) if isinstance(v, Path) else v for name, v in vars(given).items()}
        about = {
            name: value
            for name, value in about.items()
            if name not in ("json", "root", "cpu", "count")
        }
        about["pictures"] = len(files)
        record = {
            "device": device,
            "cores": cores,
            "settings": about,
            "seconds": times,
            "ratio": ratio,
        }
        given.json.write_text(json.dumps({**record, "environment": environment()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
