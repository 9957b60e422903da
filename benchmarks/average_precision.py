"""Time of our average precision against scikit-learn's, class by class, in one process.

Run: python benchmarks/average_precision.py [--repeats 5] [--json FILE]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score

from spml.metrics import average_precision

SIZES = {"coco test": (40137, 80), "voc test": (5823, 20)}


def table(items: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    truth = np.where(
        random.random((items, classes)) < random.uniform(0.002, 0.08, classes), 1, -1
    ).astype(np.int8)
    return (random.normal(size=truth.shape) + truth).astype(np.float32), truth


def scikit_learn(logits: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.array(
        [average_precision_score(truth[:, c] == 1, logits[:, c]) for c in range(truth.shape[1])]
    )


def seconds(function: Callable[..., np.ndarray], *arguments: np.ndarray) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    rows = []
    for name, size in SIZES.items():
        data = table(*size)
        difference = np.abs(average_precision(*data) - scikit_learn(*data)).max()
        times = [
            (seconds(scikit_learn, *data), seconds(average_precision, *data))
            for _ in range(options.repeats)
        ]
        theirs, ours = (statistics.median(column) for column in zip(*times, strict=True))
        print(
            f"{name} {size[0]}x{size[1]}: "
            f"scikit-learn {theirs * 1e3:.1f} ms, spml {ours * 1e3:.1f} ms, "
            f"{theirs / ours:.1f} times as fast, largest difference {difference:.1e}"
        )
        rows.append(
            {
                "name": name,
                "shape": size,
                "scikit_learn": theirs,
                "spml": ours,
                "difference": difference,
            }
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
