"""Labels of many rows and 10,000 classes: time and memory of loading them and of an epoch of dense batches.

python benchmarks/labels.py [--rows 10000 100000 1000000] [--json benchmarks/results/labels.json]
python benchmarks/labels.py --docs docs/data.md [--json benchmarks/results/labels.json]

Each table is loaded in a process of its own, on one core and with one thread. Two in ten rows have a second positive.
The seconds printed are processor time, so that other programs on the machine count little; the file has both.
The second form writes the recorded figures into a page, between the lines that say so.
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
    """A table in long form, of one or two positives a row."""
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
    """Figures of this process: what importing took, loading, and an epoch of batches."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import numpy as np

    from spml.data import load

    before = peak()
    began = clocks()
    experiment = load(path)
    loaded = clocks()
    order = np.random.default_rng(0).permutation(experiment.train_rows)
    started, made = clocks(), 0
    for start in range(0, len(order), BATCH):
        made += experiment.observed.rows(order[start : start + BATCH]).size
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
        "epoch_labels": made,
        "imports_gib": before,
        "peak_gib": peak(),
    }


def clocks() -> tuple[float, float]:
    """Processor time of this process and time on the wall, in seconds."""
    return time.process_time(), time.perf_counter()


def peak() -> float:
    """The most memory that this process has held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def run(rows: list[int]) -> dict[str, object]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("csv", "parquet"):
            for count in rows:
                path = Path(folder) / f"{count}.{kind}"
                alone(
                    "--write", str(path), "--rows", str(count)
                )  # a child's peak begins at its parent's size
                figures = json.loads(alone("--measure", str(path)))
                found.append({"from": kind, "file_mib": path.stat().st_size / 2**20} | figures)
                path.unlink()
    about = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": processor(),
    }
    return {"classes": CLASSES, "batch": BATCH, "limits": LIMITS, "about": about, "figures": found}


def alone(*arguments: str) -> str:
    """What this program prints in a process of its own, of one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "ARROW_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(
        command, env=os.environ | threads, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def processor() -> str:
    """What the machine calls its processor."""
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
        cells = f"{one['load_seconds']:.2f} | {each[0]:.1f} | {one['epoch_seconds']:.2f} | {each[1]:.1f}"
        name = {"csv": "CSV", "parquet": "Parquet"}[one["from"]]
        out.append(f"| {one['rows']:,} | {name} | {cells} | {one['peak_gib']:.2f} |")
    limit = results["limits"]
    out.append(
        f"| limit | Parquet | {limit['seconds to load, from Parquet']:.0f} | | | | {limit['peak memory in GiB']:.0f} |"
    )
    return out


def into_page(page: Path, results: dict) -> None:
    """Put the table between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    before, start, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not start or not end:
        raise SystemExit(f"{page}: no {MARKS[0]} followed by {MARKS[1]}")
    imports = max(one["imports_gib"] for one in results["figures"])
    said = f"Processor time on one core ({results['about']['processor']}); batches of {results['batch']} rows. "
    said += f"Of the peak, {imports:.2f} GiB are held before loading."
    page.write_text(
        "\n".join([before + start, *lines(results), "", said, end]) + after, encoding="utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--json", type=Path, help="file to write, or with --docs to read")
    parser.add_argument("--docs", type=Path, help="page to write the recorded table into")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure)))
    elif given.write:
        write(given.write, *given.rows)
    elif given.docs:
        into_page(given.docs, json.loads((given.json or RESULTS).read_text()))
    else:
        results = run(given.rows)
        print("\n".join(lines(results)))
        if given.json:
            given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
