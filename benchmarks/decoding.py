"""Speed of decoding and of the decoded cache, per core, against a PIL worker on the same pictures.

python benchmarks/decoding.py --root FOLDER [--count 300] [--size 448] [--json results.json]

The worker does to a picture what the reference's DataLoader workers do: open, convert, resize, to a float tensor,
normalise. All run in this process with one thread each, in turn; a figure is the best of several rounds in CPU time,
so that other programs on the machine count little. Also counted: pixels that differ from the protocol's resize.
"""

import argparse
import json
import platform
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image, __version__
from torchvision.transforms import Compose, Normalize, Resize, ToTensor

from spml.data import LabelTable
from spml.data.images.cache import open_cache
from spml.data.images.decode import decode
from spml.data.images.loader import Feed
from spml.data.readers.folders import PICTURES

BATCH = 16
TARGETS = {"decode / PIL worker": 2, "epoch from the warm cache / epoch by decoding": 10}


def rounds(named: dict[str, Callable[[], object]], count: int, repeats: int) -> dict[str, float]:
    """Pictures a second of CPU time, the best round of each; what is compared runs in turn."""
    best = dict.fromkeys(named, float("inf"))
    for _ in range(repeats):
        for name, work in named.items():
            began = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - began)
    return {name: count / seconds for name, seconds in best.items()}


def consume(batches: Iterable[object]) -> None:
    for _ in batches:
        pass


def epoch(feed: Feed, seed: int = 0) -> None:
    """Every picture once, in random order."""
    order = np.random.default_rng(seed).permutation(len(feed))
    consume(feed.batches(np.split(order, range(BATCH, len(order), BATCH))))


def differences(files: list[Path], size: int) -> list[float]:
    """Share of values that are 0, 1, 2 and more grey levels from the protocol's resize."""
    counts = np.zeros(256, np.int64)
    for file in files:
        with Image.open(file) as image:
            theirs = np.asarray(
                image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
            )
        ours = decode(file, size, upright=False).permute(1, 2, 0).numpy()
        counts += np.bincount(np.abs(ours.astype(int) - theirs).ravel(), minlength=256)
    return [float(x) / counts.sum() for x in (*counts[:3], counts[3:].sum())]


def measure(files: list[Path], size: int, repeats: int, folder: Path) -> dict[str, float]:
    transform = Compose(
        [Resize((size, size)), ToTensor(), Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    )
    table = LabelTable([str(file) for file in files], ["any"], np.zeros((len(files), 1), np.int8))
    began = time.process_time()
    cache = open_cache([table], size, "disk", folder=folder, threads=1)
    building = len(files) / (time.process_time() - began)
    decoding, cached = Feed(table, size, threads=1), Feed(table, size, threads=1, cache=cache)
    memory = Feed(table, size, threads=1, cache=open_cache([table], size, "memory", folder=folder))
    began = time.process_time()
    epoch(cached)
    first = len(files) / (time.process_time() - began)
    named: dict[str, Callable[[], object]] = {
        "PIL worker": lambda: consume(transform(Image.open(file).convert("RGB")) for file in files),
        "decode": lambda: consume(decode(file, size) for file in files),
        "epoch by decoding": lambda: epoch(decoding),
        "epoch from the warm cache": lambda: epoch(cached),
        "epoch from the cache in memory": lambda: epoch(memory),
    }
    figures = rounds(named, len(files), repeats)
    return {**figures, "first epoch, checksums verified": first, "building the cache": building}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of pictures")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)  # of resizing and stacking, where this process runs them
    files = sorted(file for file in given.root.rglob("*") if file.suffix.lower() in PICTURES)
    files = random.Random(0).sample(files, min(given.count, len(files)))
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(files, given.size, given.repeats, Path(folder))
    print(
        f"{len(files)} pictures at {given.size} px, {platform.machine()}, torch {torch.__version__}"
    )
    print(
        f"torchvision {torchvision.__version__}, Pillow {__version__}; pictures a second of one core:"
    )
    for name, figure in figures.items():
        print(f"  {name:<34}{figure:>10,.0f}")
    ratios = {
        pair: figures[pair.split(" / ")[0]] / figures[pair.split(" / ")[1]] for pair in TARGETS
    }
    for pair, ratio in ratios.items():
        reached = "" if ratio >= TARGETS[pair] else "  NOT REACHED"
        print(f"  {pair}: {ratio:.1f} (target {TARGETS[pair]}){reached}")
    off = differences(files, given.size)
    print(
        "  values 0, 1, 2, more grey levels from the protocol's: "
        + ", ".join(f"{share:.2e}" for share in off)
    )
    if given.json:
        given.json.write_text(
            json.dumps({"figures": figures, "ratios": ratios, "differences": off}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
