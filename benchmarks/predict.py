"""Measure whether decoding and model overlap in `spml predict`: each alone, then both.

python benchmarks/predict.py --root FOLDER [--count 300] [--size 448] [--json results.json]

"Decoding alone" makes the batches and discards them; "model alone" scores batches in memory; "both"
is `spml predict`, including the output file. The three alternate in one process with the same
threads: `--threads` decode, and on a CPU the model has `--model-threads`. By default both together
have as many threads as there are cores, because with more they would slow each other down. The
ratio is that of the best of several rounds, so that other programs hardly matter.
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
from spml.use.predict.predict import Rule, reader, scorer
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
    """Seconds of each in alternating rounds, after a warm-up round."""
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
    files: list[Path], options: argparse.Namespace, device: str, folder: Path
) -> dict[str, list[float]]:
    model, info = build(options.backbone, options.weights, options.size, options.classes)
    decoder, score = (
        reader(info, options.batch_size, options.threads, device),
        scorer(model, info, device),
    )
    options.batch_size, options.threads = decoder.batch_size, decoder.threads
    items = [Item(str(file), file) for file in files]
    ready = list(decoder.batches(items))
    rule = Rule({})

    def both() -> None:
        fast = Replayed(score, device)
        with writing(folder / "out.csv", "csv", info.classes) as write:
            batches = decoder.batches(items, before=fast.prepare)
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
        "decoding alone": lambda: [None for _ in decoder.batches(items)],
        "model alone": model_alone,
        "both": both,
    }
    return rounds(named, options.repeats, device)


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
        "--threads", type=int, help="for decoding; default: all cores that the model does not use"
    )
    parser.add_argument(
        "--model-threads", type=int, help="of the model on a CPU; default: all cores but one"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="even if there is a GPU")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    cores = len(os.sched_getaffinity(0))
    if device == "cpu":
        options.model_threads = options.model_threads or max(1, cores - 1)
        torch.set_num_threads(options.model_threads)
        options.threads = options.threads or max(1, cores - options.model_threads)
    files = sorted(file for file in options.root.rglob("*") if file.suffix.lower() in PICTURES)
    files = random.Random(0).sample(files, min(options.count, len(files)))
    with tempfile.TemporaryDirectory() as folder:
        times = measure(files, options, device, Path(folder))
    best = {name: min(values) for name, values in times.items()}
    ratio = best["both"] / max(best["decoding alone"], best["model alone"])
    used = f"{options.threads} threads decode" + (
        f", {options.model_threads} for the model" if device == "cpu" else ""
    )
    print(
        f"{len(files)} pictures at {options.size} px, {options.backbone} on {device}; "
        f"{cores} cores, {used}; pictures/s:"
    )
    for name, seconds in best.items():
        print(f"  {name:<16}{len(files) / seconds:>10,.1f}")
    reached = "" if ratio <= TARGET else "  NOT REACHED"
    print(f"  both / the slower alone: {ratio:.3f} (target {TARGET}){reached}")
    if options.json:
        about = {name: str(v) if isinstance(v, Path) else v for name, v in vars(options).items()}
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
        options.json.write_text(
            json.dumps({**record, "environment": environment()}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
