"""Time and memory of loading labels of 10,000 classes, and of an epoch of dense batches.

python benchmarks/labels.py [--rows 10000 100000 1000000] [--json benchmarks/results/labels.json]
python benchmarks/labels.py --docs docs/data.md [--json benchmarks/results/labels.json]

Each table is loaded in a new process, on one core and with one thread. Two in ten rows have a
second positive. The printed seconds are processor time, so that other programs hardly matter; the
file has wall time too. The second form writes the recorded figures between the markers of a page.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLASSES = 10_000
BATCH = 64
GIB = 2**30
RESULTS = Path(__file__).parent / "results" / "labels.json"
LIMITS = {"seconds to load, from Parquet": 60.0, "peak memory in GiB": 2.0}
MARKS = "<!-- generated: labels -->", "<!-- end -->"


def write(path: Path, rows: int) -> None:
    """Write a table in long form with one or two positives per row."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, parquet

    rng = np.random.default_rng(0)
    first, second = rng.integers(0, CLASSES, (2, rows))
    first[:CLASSES] = np.arange(CLASSES)  # every class occurs
    two = rng.random(rows) < 0.2
    labels = [
        f"class {a}|class {b}" if both else f"class {a}"
        for a, b, both in zip(first, second, two, strict=True)
    ]
    table = pa.table(
        {"image": [f"photos/{i // 1000:04d}/{i:07d}.jpg" for i in range(rows)], "label": labels}
    )
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)


def measure(path: Path) -> dict[str, float]:
    """Measure imports, loading and an epoch of batches in this process."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import numpy as np

    from spml.data import load

    before = peak()
    began = clocks()
    experiment = load(path)
    loaded = clocks()
    order = np.random.default_rng(0).permutation(experiment.train_rows)
    started, labels = clocks(), 0
    for start in range(0, len(order), BATCH):
        labels += experiment.observed.rows(order[start : start + BATCH]).size
    ended = clocks()
    table = experiment.observed
    return {
        "rows": len(table),
        "classes": len(table.classes),
        "load_seconds": loaded[0] - began[0],
        "load_wall_seconds": loaded[1] - began[1],
        "epoch_rows": len(order),
        "epoch_seconds": ended[0] - started[0],
        "epoch_wall_seconds": ended[1] - started[1],
        "epoch_labels": labels,
        "imports_gib": before,
        "peak_gib": peak(),
    }


def clocks() -> tuple[float, float]:
    """Processor time of this process and wall time, in seconds."""
    return time.process_time(), time.perf_counter()


def peak() -> float:
    """Peak memory of this process, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def run(rows: list[int]) -> dict[str, object]:
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("csv", "parquet"):
            for count in rows:
                path = Path(folder) / f"{count}.{kind}"
                # in a new process: the peak of a child starts at the size of its parent
                alone("--write", str(path), "--rows", str(count))
                figures = json.loads(alone("--measure", str(path)))
                records.append({"from": kind, "file_mib": path.stat().st_size / 2**20} | figures)
                path.unlink()
    about = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": processor(),
    }
    return {
        "classes": CLASSES,
        "batch": BATCH,
        "limits": LIMITS,
        "about": about,
        "figures": records,
    }


def alone(*arguments: str) -> str:
    """Output of this program in a new process with one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "ARROW_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(
        command, env=os.environ | threads, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def processor() -> str:
    """Name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
    )


def lines(results: dict) -> list[str]:
    """The figures as a table."""
    heads = ["from", "load, s", "µs a row", "epoch of batches, s", "µs a row", "peak GiB"]
    out = [f"| rows × {results['classes']:,} classes | {' | '.join(heads)} |", "|---" * 7 + "|"]
    for one in results["figures"]:
        each = (
            1e6 * one["load_seconds"] / one["rows"],
            1e6 * one["epoch_seconds"] / one["epoch_rows"],
        )
        load = f"{one['load_seconds']:.2f} | {each[0]:.1f}"
        cells = f"{load} | {one['epoch_seconds']:.2f} | {each[1]:.1f}"
        name = {"csv": "CSV", "parquet": "Parquet"}[one["from"]]
        out.append(f"| {one['rows']:,} | {name} | {cells} | {one['peak_gib']:.2f} |")
    limit = results["limits"]
    seconds, memory = limit["seconds to load, from Parquet"], limit["peak memory in GiB"]
    out.append(f"| limit | Parquet | {seconds:.0f} | | | | {memory:.0f} |")
    return out


def into_page(page: Path, results: dict) -> None:
    """Put the table between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    before, start, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not start or not end:
        raise SystemExit(f"{page}: no {MARKS[0]} followed by {MARKS[1]}")
    imports = max(one["imports_gib"] for one in results["figures"])
    note = f"Processor time on one core ({results['about']['processor']}); "
    note += f"batches of {results['batch']} rows. "
    note += f"Of the peak, {imports:.2f} GiB are held before loading."
    page.write_text(
        "\n".join([before + start, *lines(results), "", note, end]) + after, encoding="utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--json", type=Path, help="file to write, or with --docs to read")
    parser.add_argument("--docs", type=Path, help="page to write the recorded table into")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
    elif options.write:
        write(options.write, *options.rows)
    elif options.docs:
        into_page(options.docs, json.loads((options.json or RESULTS).read_text()))
    else:
        results = run(options.rows)
        print("\n".join(lines(results)))
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
