"""Training steps per second of several processes on one device, each with its own run.

python benchmarks/side_by_side.py --processes 1,4,8 [--json results.json]    # MPS: start its daemon

Each process prepares its step, waits until all are ready, and counts its steps for some seconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common import environment
from made_up import fake
from throughput import spml_step

from spml.train import Settings


def count(options: argparse.Namespace, ready: Any, speeds: Any) -> None:
    """Measure the steps per second of this process once all are ready."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        experiment = fake(Path(name) / "pictures", 40)
        sizes = {"size": options.size, "batch_size": options.batch, "epochs": 1, "lr": 1e-5}
        where = {"accelerator": options.device, "cache_dir": Path(name) / "cache"}
        step, *_ = spml_step(
            experiment, Settings(backbone=options.backbone, weights="none", **sizes, **where)
        )
        for _ in range(3):
            step()
        ready.wait()
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < options.seconds:
            step()
            done += 1
            if options.device == "cuda" and done % 10 == 0:
                torch.cuda.synchronize()
        speeds.put(done / (time.perf_counter() - began))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", default="1,4,8", help="numbers of them, separated by commas")
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    context, rows = multiprocessing.get_context("spawn"), []
    for number in map(int, options.processes.split(",")):
        ready, speeds = context.Barrier(number), context.Queue()
        workers = [
            context.Process(target=count, args=(options, ready, speeds)) for _ in range(number)
        ]
        for worker in workers:
            worker.start()
        rows.append({"processes": number, "steps_per_second": [speeds.get() for _ in workers]})
        for worker in workers:
            worker.join()
        print(f"{number} processes: {sum(rows[-1]['steps_per_second']):.1f} steps/s", flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
