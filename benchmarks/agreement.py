"""Whether what makes training fast leaves its results alone: real pictures, one thing changed at a time.

python benchmarks/agreement.py --data DIR --weights FILE [--jobs 8] [--json results.json]

DIR holds VOCdevkit, FILE the ImageNet weights of tf_efficientnet_lite0. The defaults on a GPU are run with several
seeds, each other way with the first of them; what counts is how far that is from the seeds' own spread. Runs that the
file of figures has already are not made again.
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
    "graphs with torch's batch norm": {"compile": "graphs", "fused_norm": False},
    "compiled": {"compile": "compile"},
    "16-mixed": {"precision": "16-mixed"},
    "eager in 32-true": {"precision": "32-true", "compile": "none"},
    "pictures from memory": {"cache": "memory"},
    "pictures from disk": {"cache": "disk"},
    "scored 16 at a time": {"eval_batch_size": 16},
}


def one(
    given: argparse.Namespace, method: str, way: str, seed: int, folder: Path
) -> dict[str, Any]:
    torch.set_num_threads(1)
    changed = WAYS.get(way, {})
    own = {"weights": str(given.weights), "epochs": given.epochs, "accelerator": given.accelerator}
    settings = Settings(method=method, seed=seed, cache_dir=given.cache, **COMMON, **own, **changed)
    experiment = load("voc", given.data)
    out = folder / f"{method}-{'-'.join(way.split())}-{seed}"
    result = fit(experiment, settings, out, quiet=True)
    kept = {
        name: result[name] for name in ("best_epoch", "val_map", "test_map", "images_per_second")
    }
    return {"method": method, "way": way, "seed": seed, **kept}


def show(rows: list[dict[str, Any]]) -> str:
    """A table: the defaults' mean and deviation, and how far each way is from the default of its seed."""
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
        for row in (
            row for way in WAYS for row in rows if (row["method"], row["way"]) == (method, way)
        ):
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
    given = parser.parse_args()
    jobs = [(given, method, "defaults", seed) for seed in SEEDS for method in METHODS]
    jobs += [
        (given, method, way, SEEDS[0])
        for way in WAYS
        if way in given.ways.split(",")
        for method in METHODS
    ]
    settings = {**COMMON, "epochs": given.epochs}
    there: dict[str, Any] = {"settings": settings, "runs": []}
    if given.json and given.json.exists():
        there = json.loads(given.json.read_text())
    if there["settings"] != settings:
        parser.error(f"{given.json} was made with {there['settings']}")
    rows: list[dict[str, Any]] = there["runs"]
    done = {(row["method"], row["way"], row["seed"]) for row in rows}

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print(f"{row['method']} {row['way']} {row['seed']}: {row['test_map']:.2f}", flush=True)
        if given.json:
            ordered = sorted(rows, key=lambda row: (row["method"], row["way"], row["seed"]))
            kept = {"environment": environment(), "settings": settings, "runs": ordered}
            given.json.write_text(json.dumps(kept, indent=1) + "\n")

    run_all(one, [job for job in jobs if job[1:] not in done], given.jobs, keep)
    print(show(rows))


if __name__ == "__main__":
    main()
