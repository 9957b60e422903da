"""Several methods and seeds on one data set, several runs at a time, and their table."""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from spml.cli.commands.train import Train
from spml.machine import cores

Results = dict[str, list[dict[str, Any]]]


def compare(
    data: str,
    methods: Sequence[str],
    seeds: int,
    out: Path,
    epochs: int | None = None,
    jobs: int | None = None,
) -> Results:
    """Train each method with each seed (finished runs are kept), print mean ± deviation, write the report."""
    from spml.report import write_report
    from spml.runs.names import REPORT

    runs = {(method, seed): out / f"{method}-{seed}" for seed in range(seeds) for method in methods}
    results: Results = {method: [] for method in methods}
    console = Console()
    context = multiprocessing.get_context("spawn")
    workers = min(jobs or cores(), len(runs))
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    with ProcessPoolExecutor(workers, context) as pool, progress as bar:
        task = bar.add_task(f"{len(runs)} runs on {data}", total=len(runs))
        waiting = {
            pool.submit(_train, data, method, seed, epochs, folder, workers): (method, seed)
            for (method, seed), folder in runs.items()
        }
        try:
            for done in as_completed(waiting):
                method, seed = waiting[done]
                result = done.result()
                results[method].append(result)
                bar.advance(task)
                bar.console.print(
                    f"{method:<6} seed {seed}: test mAP {result['test_map']:.2f}", highlight=False
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()  # each run can be resumed from its last finished epoch
            raise
    console.print(_table(results, data), soft_wrap=True)
    page = write_report(list(runs.values()), out / REPORT)
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
    return results


def _train(
    data: str, method: str, seed: int, epochs: int | None, folder: Path, workers: int
) -> dict[str, Any]:
    import torch

    from spml.runs.run import Run

    torch.set_num_threads(max(1, cores() // workers))
    Train(
        data=data, method=method, seed=seed, epochs=epochs, out=folder, resume=True, quiet=True
    ).run()
    return Run(folder).require_result()


def _table(results: Results, data: str) -> Table:
    table = Table(
        "method", "test mAP", "seeds", title=f"{data}: mean ± deviation", title_justify="left"
    )
    for method, runs in results.items():
        maps = [run["test_map"] for run in runs]
        deviation = f" ± {statistics.stdev(maps):.2f}" if len(maps) > 1 else ""
        table.add_row(method, f"{statistics.mean(maps):.2f}{deviation}", str(len(maps)))
    return table
