"""What benchmarks share: runs in processes of their own, tables in pages, and medians of things timed in turn."""

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
    """Each job in one of so many processes; `keep` is given each result as it comes. A job that fails stops no other.

    Args:
        function: takes a job's values, and a folder to work in.
        jobs: what to call it with.
        processes: at once.
        keep: is told of each result.
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
    """The page with the table of that name put between its markers."""
    place = re.compile(rf"(<!-- generated: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not place.search(text):
        raise SystemExit(
            f"the page has no place for a table: <!-- generated: {name} --> … <!-- end -->"
        )
    return place.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text)


def put_table(page: Path, name: str, table: str) -> None:
    """The same in a file."""
    write_text(page, with_table(page.read_text(encoding="utf-8"), name, table))


def seconds(step: Step, device: str) -> float:
    """That a step takes: by events on a GPU, by a clock elsewhere."""
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
    """Seconds of each step, the steps taken in turn for about `budget` seconds."""
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
    """Median seconds of each step, the steps taken in turn for about `budget` seconds."""
    return {
        name: statistics.median(values) for name, values in turns(steps, device, budget).items()
    }


def environment() -> dict[str, object]:
    """What timings depend on."""
    import torch

    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cuda": torch.version.cuda,
    }
