"""Helpers of the benchmarks: runs in several processes, tables in pages, and timings."""

from __future__ import annotations

import multiprocessing
import platform
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from spml.files import write_text

Step = Callable[[], object]


def run_all(
    function: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
    processes: int,
    keep: Callable[[Any], None],
) -> None:
    """Run jobs in parallel processes; a failed job does not stop the others.

    Args:
        function: called with the values of a job and a working folder.
        jobs: the values of each job.
        processes: number of jobs at a time.
        keep: called with each result as it arrives.
    """
    failed = []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(processes, context) as pool:
        waiting = {pool.submit(function, *job, Path(folder)): job for job in jobs}
        for future in as_completed(waiting):
            error = future.exception()
            if error is None:
                keep(future.result())
            else:
                failed.append(waiting[future])
                print(f"{waiting[future]} failed: {type(error).__name__}: {error}", flush=True)
    if failed:
        raise SystemExit(
            f"{len(failed)} of {len(jobs)} runs failed; run again to try these once more"
        )


def with_table(text: str, name: str, table: str) -> str:
    """Return the page with the table between the markers of its name."""
    place = re.compile(rf"(<!-- generated: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not place.search(text):
        raise SystemExit(
            f"the page has no place for a table: <!-- generated: {name} --> … <!-- end -->"
        )
    return place.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text)


def put_table(page: Path, name: str, table: str) -> None:
    """Write the table into a page."""
    write_text(page, with_table(page.read_text(encoding="utf-8"), name, table))


def seconds(step: Step, device: str) -> float:
    """Seconds of a step, by events on a GPU and by a clock elsewhere."""
    if device != "cuda":
        begin = time.perf_counter()
        step()
        return time.perf_counter() - begin
    import torch

    begin_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin_event.record()
    step()
    end_event.record()
    end_event.synchronize()
    return float(begin_event.elapsed_time(end_event)) / 1e3


def turns(steps: dict[str, Step], device: str, budget: float) -> dict[str, list[float]]:
    """Seconds of each step; the steps alternate for about `budget` seconds."""
    for step in steps.values():
        for _ in range(3):
            step()
    once = sum(seconds(step, device) for step in steps.values())
    repeats = min(max(int(budget / max(once, 1e-6)), 7), 1000)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            times[name].append(seconds(step, device))
    return times


def medians(steps: dict[str, Step], device: str, budget: float) -> dict[str, float]:
    """Median seconds of each step; the steps alternate for about `budget` seconds."""
    return {
        name: statistics.median(values) for name, values in turns(steps, device, budget).items()
    }


def environment() -> dict[str, object]:
    """Versions and hardware that timings depend on."""
    import torch

    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cuda": torch.version.cuda,
    }
