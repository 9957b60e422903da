"""Check that fast training keeps its results: real pictures, one setting changed at a time.

python benchmarks/agreement.py --data DIR --weights FILE [--jobs 8] [--json results.json]

DIR holds VOCdevkit, FILE the ImageNet weights of tf_efficientnet_lite0. The defaults on a GPU are
run with several seeds, every other setting with the first seed. Its difference is compared with the
deviation over seeds. Runs that are already in the file of figures are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from common import environment, run_all

from spml.data import load
from spml.train import Settings, fit

COMMON = {"backbone": "tf_efficientnet_lite0", "size": 224, "batch_size": 8, "lr": 5e-5}
METHODS = ("an", "gr")
SEEDS = (0, 1, 2)
WAYS: dict[str, dict[str, Any]] = {
    "eager": {"compile": "none"},
    "compiled": {"compile": "compile"},
    "16-mixed": {"precision": "16-mixed"},
    "eager in 32-true": {"precision": "32-true", "compile": "none"},
    "pictures from memory": {"cache": "memory"},
    "pictures from disk": {"cache": "disk"},
    "scored 16 at a time": {"eval_batch_size": 16},
}


def one(
    options: argparse.Namespace, method: str, way: str, seed: int, folder: Path
) -> dict[str, Any]:
    torch.set_num_threads(1)
    changed = WAYS.get(way, {})
    own = {
        "weights": str(options.weights),
        "epochs": options.epochs,
        "accelerator": options.accelerator,
    }
    settings = Settings(
        method=method, seed=seed, cache_dir=options.cache, **COMMON, **own, **changed
    )
    experiment = load("voc", options.data)
    out = folder / f"{method}-{'-'.join(way.split())}-{seed}"
    result = fit(experiment, settings, out, quiet=True)
    figures = {
        name: result[name] for name in ("best_epoch", "val_map", "test_map", "images_per_second")
    }
    return {"method": method, "way": way, "seed": seed, **figures}


def show(rows: list[dict[str, Any]]) -> str:
    """A table: mean and deviation of the defaults, and the difference of each way, same seed."""
    lines = [
        "| method | run as | test mAP | against the defaults, same seed | deviation over seeds |",
        "|---|---|---|---|---|",
    ]
    for method in METHODS:
        default = {
            row["seed"]: row["test_map"]
            for row in rows
            if row["method"] == method and row["way"] == "defaults"
        }
        if SEEDS[0] not in default:
            continue
        spread = f"{statistics.stdev(default.values()):.2f}" if len(default) > 1 else "-"
        mean = statistics.mean(default.values())
        lines.append(f"| {method} | defaults, {len(default)} seeds | {mean:.2f} | | {spread} |")
        for row in rows:
            if row["method"] != method or row["way"] == "defaults":
                continue
            away = row["test_map"] - default[row["seed"]]
            lines.append(
                f"| {method} | {row['way']} | {row['test_map']:.2f} | {away:+.2f} | {spread} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="the folder that holds VOCdevkit")
    parser.add_argument("--weights", type=Path, required=True, help="of tf_efficientnet_lite0")
    parser.add_argument("--cache", type=Path, help="folder of decoded pictures")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=8, help="runs side by side")
    parser.add_argument("--accelerator", default="cuda")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of them, separated by commas")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    jobs = [(options, method, "defaults", seed) for seed in SEEDS for method in METHODS]
    jobs += [
        (options, method, way, SEEDS[0])
        for way in WAYS
        if way in options.ways.split(",")
        for method in METHODS
    ]
    settings = {**COMMON, "epochs": options.epochs}
    there: dict[str, Any] = {"settings": settings, "runs": []}
    if options.json and options.json.exists():
        there = json.loads(options.json.read_text())
    if there["settings"] != settings:
        parser.error(f"{options.json} was made with {there['settings']}")
    rows: list[dict[str, Any]] = there["runs"]
    done = {(row["method"], row["way"], row["seed"]) for row in rows}

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print(f"{row['method']} {row['way']} {row['seed']}: {row['test_map']:.2f}", flush=True)
        if options.json:
            ordered = sorted(rows, key=lambda row: (row["method"], row["way"], row["seed"]))
            content = {"environment": environment(), "settings": settings, "runs": ordered}
            options.json.write_text(json.dumps(content, indent=1) + "\n")

    run_all(one, [job for job in jobs if job[1:] not in done], options.jobs, keep)
    print(show(rows))


if __name__ == "__main__":
    main()
