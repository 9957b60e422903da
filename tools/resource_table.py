"""Write the table behind the estimates of `spml check` and `spml train` from recorded benchmarks.

python tools/resource_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spml.files import write_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TABLE = ROOT / "src" / "spml" / "cli" / "output" / "resources.json"
H200 = {"tf_efficientnet_lite0": "predict-h200-448", "resnet50": "predict-h200-448-resnet50"}
VOC = 4574, 1143, 5823  # pictures of the splits, which generated pictures are divided like


def record(name: str) -> Any:
    """Return a recorded benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def on_gpu(backbone: str, scored: str) -> dict[str, Any]:
    """Seconds of a picture in a training step from CUDA graphs, and in scoring."""
    (step,) = [
        row
        for row in record("kernel-choice-h200")["rows"]
        if (row["kind"], row["backbone"], row["way"]) == ("step", backbone, "bf16, graphs")
        and "seconds" in row
    ]
    scoring = record(scored)
    return {
        "device": "cuda",
        "on": "an NVIDIA H200",
        "backbone": backbone,
        "size": scoring["settings"]["size"],
        "train_seconds": step["seconds"] / step["batch"],
        "score_seconds": min(scoring["seconds"]["model alone"]) / scoring["settings"]["pictures"],
    }


def on_cpu() -> dict[str, Any]:
    """The same of the recorded run on a CPU."""
    run = record("throughput-cpu")
    asked, seconds = run["asked"], run["seconds"]
    tested = asked["fake"] * VOC[2] / sum(VOC)
    return {
        "device": "cpu",
        "on": f"{run['environment']['threads']} CPU cores",
        "backbone": asked["backbone"],
        "size": asked["size"],
        "train_seconds": seconds["step"]["spml"] / asked["batch"],
        "score_seconds": seconds["evaluation"]["spml"] / tested,
    }


def memory() -> dict[str, dict[str, float]]:
    """Bytes at any size, and bytes of each pixel of a batch, by backbone."""
    run, rows = record("memory-cpu"), {}
    for backbone in {row["backbone"]: None for row in run["rows"]}:
        peaks = {
            row["size"]: row["peak_bytes"] for row in run["rows"] if row["backbone"] == backbone
        }
        small, large = sorted(peaks)
        pixels = run["batch"] * (large**2 - small**2)
        each = (peaks[large] - peaks[small]) / pixels
        base = peaks[large] - each * run["batch"] * large**2
        rows[backbone] = {"base": round(base), "per_pixel": rounded(each)}
    return rows


def rounded(value: float) -> float:
    """Three digits: the estimates show two."""
    return float(f"{value:.3g}")


def table() -> dict[str, Any]:
    """Return the content of resources.json."""
    speed = [on_gpu(backbone, scored) for backbone, scored in H200.items()] + [on_cpu()]
    for row in speed:
        row |= {name: rounded(row[name]) for name in ("train_seconds", "score_seconds")}
    built = record("decoding")["figures"]["building the cache"]
    return {
        "decoding": {"size": 448, "pictures_per_second": round(built)},
        "memory": memory(),
        "speed": speed,
    }


if __name__ == "__main__":
    write_text(TABLE, json.dumps(table(), indent=1) + "\n")
