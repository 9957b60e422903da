"""Speed of decoding and of the decoded cache, per core, against a PIL worker on the same pictures.

python benchmarks/decoding.py --root FOLDER [--count 300] [--size 448] [--json results.json]

The worker processes a picture like the DataLoader workers of the reference: open, convert, resize,
convert to a float tensor, normalise. All run in turn in this process with one thread each. A figure
is the best of several rounds in CPU time, so that other programs hardly matter. Pixels that differ
from the resize of the protocol are counted too.
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
from PIL import Image, ImageOps, __version__
from torchvision.transforms import Compose, Normalize, Resize, ToTensor

from spml.data import LabelTable
from spml.data.images.cache import open_cache
from spml.data.images.decode import decode
from spml.data.images.loader import Feed
from spml.data.readers.folders import PICTURES

BATCH = 16
TARGETS = {"decode / PIL worker": 2, "epoch from the warm cache / epoch by decoding": 10}


def rounds(named: dict[str, Callable[[], object]], count: int, repeats: int) -> dict[str, float]:
    """Pictures per second of CPU time in the best round of each; the rounds alternate."""
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
                ImageOps.exif_transpose(image)
                .convert("RGB")
                .resize((size, size), Image.Resampling.BILINEAR)
            )
        ours = decode(file, size).permute(1, 2, 0).numpy()
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
    options = parser.parse_args()
    torch.set_num_threads(1)  # for resizing and stacking in this process
    files = sorted(file for file in options.root.rglob("*") if file.suffix.lower() in PICTURES)
    files = random.Random(0).sample(files, min(options.count, len(files)))
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(files, options.size, options.repeats, Path(folder))
    print(
        f"{len(files)} pictures at {options.size} px, {platform.machine()}, "
        f"torch {torch.__version__}"
    )
    print(
        f"torchvision {torchvision.__version__}, Pillow {__version__}; "
        "pictures a second of one core:"
    )
    for name, figure in figures.items():
        print(f"  {name:<34}{figure:>10,.0f}")
    ratios = {
        pair: figures[pair.split(" / ")[0]] / figures[pair.split(" / ")[1]] for pair in TARGETS
    }
    for pair, ratio in ratios.items():
        reached = "" if ratio >= TARGETS[pair] else "  NOT REACHED"
        print(f"  {pair}: {ratio:.1f} (target {TARGETS[pair]}){reached}")
    off = differences(files, options.size)
    print(
        "  values 0, 1, 2, more grey levels from the protocol's: "
        + ", ".join(f"{share:.2e}" for share in off)
    )
    if options.json:
        options.json.write_text(
            json.dumps({"figures": figures, "ratios": ratios, "differences": off}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
