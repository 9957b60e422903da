"""Write the table of docs/choosing.md from the recorded runs.

python benchmarks/choosing.py docs/choosing.md
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from coco_plan import COCO
from common import put_table
from recorded import Recorded
from voc_plan import AT_LR

from spml import losses

RESULTS = Path(__file__).parent / "results"
PIXELS = "jpeg88-448"  # the copy of the pictures that nearly all runs read


def choosing() -> str:
    """Every method with published or default options: test mAP and the cost of a step."""
    voc, coco, digits = voc_maps(), coco_maps(), digits_maps()
    costs = {
        (row["data"], row["row"]): row["step_seconds"]["ratio"]
        for row in load("method-cost.json")["rows"]
    }
    measured = {"VOC2012": voc} | ({"COCO-22k": coco} if coco else {}) | {"digits": digits}
    head = ["method", *(f"{data}, test mAP" for data in measured), "step on VOC, an = 1", "needs"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    order = sorted(
        losses.names(),
        key=lambda name: -_mean(voc[name]) if voc[name] else 200 - _mean(digits[name]),
    )
    for name in order:
        cost = costs.get(("voc", name), 1.0 if name == "an" else None)
        cells = [_cell(maps.get(name, [])) for maps in measured.values()]
        cells.append("–" if cost is None else f"{cost:.2f}")
        needs = ", ".join(sorted(losses.needs(name))) or "–"
        lines.append(f"| [`{name}`](methods/{name}.md) | {' | '.join(cells)} | {needs} |")
    return "\n".join(lines)


def voc_maps() -> dict[str, list[float]]:
    """Test mAP of runs on EfficientNet-Lite0 with published options and one rate, by method.

    Table A lists these options; a method outside it has only its preset. A first trial counts too,
    because nothing was chosen by it.
    """
    maps: dict[str, list[float]] = defaultdict(list)
    runs = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((RESULTS / "voc2012-lite0").glob("*.json"))
    ]
    published = {run["method"]: run["options"] for run in runs if run["table"] == "Table A"}
    for run in (run for run in runs if "result" in run and run["config"]["pixels"] == PIXELS):
        # the default of pictures of a user; any other setting would not be the method's default
        query = run["config"].get("head", "").startswith("query")
        settings = {**AT_LR, "head_lr": 1.0 if query else 10.0}
        if run["options"] == published.get(run["method"], {}) and run["settings"] == settings:
            maps[run["method"]].append(run["result"]["test_map"])
    return maps


def coco_maps() -> dict[str, list[float]]:
    """Test mAP on COCO-22k of the runs with the options published for COCO, by method."""
    known = Recorded.read(setup=COCO)
    maps: dict[str, list[float]] = {}
    for run in known.plan("as published").runs(known.store.outcome):
        if record := known.record(run):
            maps[run.method] = [record["result"]["test_map"]]
    return maps


def digits_maps() -> dict[str, list[float]]:
    maps: dict[str, list[float]] = defaultdict(list)
    for run in load("digits-methods.json")["runs"]:
        if run["row"] == run["method"]:
            maps[run["method"]].append(run["test_map"])
    return maps


def load(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _mean(values: list[float]) -> float:
    return statistics.mean(values) if values else 0.0


def _cell(values: list[float]) -> str:
    if not values:
        return "not run yet"
    return f"{_mean(values):.2f}" + (
        f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else " (one run)"
    )


if __name__ == "__main__":
    put_table(Path(sys.argv[1]), "choosing", choosing())
