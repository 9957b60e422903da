"""Write the tables of docs/performance.md, predict.md, review.md and sklearn.md from results.

python benchmarks/render.py docs/performance.md
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from spml.cli.output.resources import recorded

RESULTS = Path(__file__).parent / "results"
TRAINED = 4574 * 8  # pictures in the experiment of kernel-choice-h200.json: VOC, all epochs


def losses() -> str:
    data = load("losses-h200.json")
    columns = ["spml", "graph", "compiled", "compiled+graph"]
    speeds = " | ".join(f"{c}, × as fast" for c in columns)
    lines = [f"| loss | shape | reference, ms | {speeds} |"]
    lines.append("|---" * (3 + len(columns)) + "|")
    for row in data["rows"]:
        times = row["seconds"]
        cells = [f"{times['reference'] / times[name]:.1f}" for name in columns]
        shape = f"{row['shape'][0]} × {row['shape'][1]}"
        cells = [row["loss"], shape, f"{times['reference'] * 1e3:.2f}", *cells]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| 4096 × 9605, compiled | time ÷ three passes at copy bandwidth |", "|---|---|"]
    for row in data["rows"]:
        if "three_passes_seconds" in row:
            ratio = row["seconds"]["compiled+graph"] / row["three_passes_seconds"]
            lines.append(f"| {row['loss']}, forward and backward | {ratio:.2f} |")
    one = data["one_pass"]
    lines.append(
        f"| gr, `value_and_gradient` | {one['seconds'] / one['three_passes_seconds']:.2f} |"
    )
    where = data["environment"]
    return "\n".join([*lines, "", f"{where['gpu']}, torch {where['torch']}."])


def average_precision() -> str:
    lines = [
        "| size | scikit-learn, ms | spml, ms | × as fast | largest difference |",
        "|---|---|---|---|---|",
    ]
    for row in load("average-precision.json"):
        theirs, ours = row["scikit_learn"] * 1e3, row["spml"] * 1e3
        size = f"{row['shape'][0]:,} × {row['shape'][1]}"
        times = f"{theirs:.1f} | {ours:.1f} | {theirs / ours:.1f}"
        lines.append(f"| {size} | {times} | {row['difference']:.0e} |")
    return "\n".join(lines)


def decoding() -> str:
    data = load("decoding.json")
    rows = [f"| {name} | {figure:,.0f} |" for name, figure in data["figures"].items()]
    ratios = [f"| {name} | {ratio:.1f} |" for name, ratio in data["ratios"].items()]
    return "\n".join(
        [
            "| path | pictures/s of one core |",
            "|---|---|",
            *rows,
            "",
            "| ratio | |",
            "|---|---|",
            *ratios,
        ]
    )


def predict() -> str:
    """Decoding and model in `spml predict`, alone and together, for every recorded run."""
    columns = (
        "model, pictures",
        "on",
        "threads: decoding, model",
        "decoding, pictures/s",
        "model",
        "both",
        "÷ the slower",
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for file in sorted(RESULTS.glob("predict-*.json")):
        data = load(file.name)
        settings, where = data["settings"], data["environment"]
        device = (
            where["gpu"] if data["device"] == "cuda" else f"{where['cpu']}, {data['cores']} cores"
        )
        model_threads = settings["model_threads"] if data["device"] == "cpu" else "–"
        threads = f"{settings['threads']}, {model_threads}"
        speeds = " | ".join(
            f"{settings['pictures'] / min(times):,.1f}" for times in data["seconds"].values()
        )
        what = f"{settings['backbone']}, {settings['pictures']} at {settings['size']} px"
        lines.append(f"| {what} | {device} | {threads} | {speeds} | {data['ratio']:.2f} |")
    return "\n".join(lines)


def startup() -> str:
    rows = [f"| `{name}` | {seconds:.2f} |" for name, seconds in load("startup.json").items()]
    return "\n".join(["| command | seconds |", "|---|---|", *rows])


def resources() -> str:
    """What `spml check` and `spml train` estimate with."""
    table = recorded()
    lines = ["| model | device | size, px | training, ms a picture | scoring, ms a picture |"]
    lines.append("|---|---|---|---|---|")
    for row in table["speed"]:
        times = [f"{1e3 * row[name]:.3g}" for name in ("train_seconds", "score_seconds")]
        cells = [row["backbone"], row["on"], str(row["size"]), *times]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| model, batches of 16 at 448 px | memory on a CPU, GB |", "|---|---|"]
    for backbone, row in table["memory"].items():
        lines.append(f"| {backbone} | {(row['base'] + row['per_pixel'] * 16 * 448**2) / 1e9:.1f} |")
    return "\n".join(lines)


def kernel_choice() -> str:
    """Ways to run training, one of them with kernels that were removed after this record."""
    data = load("kernel-choice-h200.json")
    ways = {
        "bf16, graphs": "`graphs`, bf16-mixed (default)",
        "fp16, graphs": "`graphs`, 16-mixed",
        "bf16, compiled, graphs": "`compile`, bf16-mixed",
        "bf16, graphs, our kernels": "removed: `graphs`, bf16-mixed, own kernels",
    }
    rows = {
        (row["kind"], row["backbone"], row["way"]): row
        for row in data["rows"]
        if "error" not in row
    }
    main, other = data["asked"]["backbones"]
    lines = [
        "| | experiment, s | preparation, s | the rest, s | step, ms | step of ResNet-50, ms |",
        "|---|---|---|---|---|---|",
    ]
    for way, title in ways.items():
        whole = rows["experiment", main, way]
        parts = (whole[name] for name in ("seconds", "preparation", "without_preparation"))
        steps = (rows.get(("step", name, way)) for name in (main, other))
        cells = [f"{part:.1f}" for part in parts]
        cells += ["–" if step is None else f"{step['seconds'] * 1e3:.1f}" for step in steps]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    where = data["environment"]
    return "\n".join([*lines, "", f"{where['gpu']}, torch {where['torch']}."])


def break_even() -> float:
    """Pictures trained on from which compiling pays, by the recorded experiment."""
    data = load("kernel-choice-h200.json")
    rows = {row["way"]: row for row in data["rows"] if row["kind"] == "experiment"}
    graphs, compiled = rows["bf16, graphs"], rows["bf16, compiled, graphs"]
    more = compiled["preparation"] - graphs["preparation"]
    saved = graphs["without_preparation"] - compiled["without_preparation"]
    return float(more / saved * TRAINED)


def throughput() -> str:
    """A training step of ResNet-50, compared with the reference loop in the same process."""
    lines = ["| step | reference, ms | spml, ms | × as fast | host, ms | synchronisations |"]
    lines.append("|---" * 6 + "|")
    records = [load(f"throughput-step-{kind}-h200.json") for kind in ("bf16", "fp16")]
    for data in records:
        pair, host = data["seconds"]["step"], data["host_seconds"]
        times = f"{pair['reference'] * 1e3:.1f} | {pair['spml'] * 1e3:.1f}"
        times += f" | {data['ratios']['step']:.2f}"
        waits = ", ".join(data["waits"]) or "none"
        lines.append(f"| {data['step_run_as']} | {times} | {host * 1e3:.1f} | {waits} |")
    lines += ["", "| device time per step, ms | bf16 | fp16 |", "|---|---|---|"]
    profiles = [data["profile"] for data in records]
    for name in profiles[0]:
        cells = [f"{profile.get(name, 0) * 1e3:.2f}" for profile in profiles]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    where = records[0]["environment"]
    return "\n".join([*lines, "", f"{where['gpu']}, torch {where['torch']}."])


def throughput_before() -> str:
    """A whole experiment with kernels that were removed later, compared with the reference loop."""
    data = load("throughput-h200.json")
    lines = [
        "| | reference, s | spml with its removed kernels, s | × as fast |",
        "|---|---|---|---|",
    ]
    for name, pair in data["seconds"].items():
        if name != "step":
            times = f"{pair['reference']:.1f} | {pair['spml']:.1f}"
            lines.append(f"| {name} | {times} | {data['ratios'][name]:.2f} |")
    return "\n".join(lines)


def side_by_side() -> str:
    """Runs of a small backbone on one GPU, with the convolutions of torch."""
    lines = ["| processes | NVIDIA MPS | steps/s, total |", "|---|---|---|"]
    for row in load("side-by-side-h200.json")["rows"]:
        if row["convolutions"] == "torch":
            total, mark = sum(row["steps_per_second"]), " *" if row["copied"] else ""
            mps = "yes" if row["mps"] else "no"
            lines.append(f"| {row['processes']} | {mps} | {total:.0f}{mark} |")
    return "\n".join(lines)


def throughput_cpu() -> str:
    """Training compared with the reference loop on two cores of a CPU."""
    data = load("throughput-cpu.json")
    lines = ["| | reference, s | spml, s | × as fast |", "|---|---|---|---|"]
    for name, pair in data["seconds"].items():
        times = f"{pair['reference']:.2f} | {pair['spml']:.2f}"
        lines.append(f"| {name} | {times} | {data['ratios'][name]:.2f} |")
    return "\n".join(lines)


def agreement() -> str:
    """Results of fast and slower ways to train."""
    from agreement import show

    return show(load("agreement.json")["runs"])


def review() -> str:
    """Precision of suggestions, and the gain of 500 answers, for every recorded data set."""
    names = {"digits": "digits", "features": "VOC2012, frozen features", "voc": "VOC2012"}
    orders = {"list": "`spml review`", "logit": "logit"}
    results = {
        name: load(f"review-{name}.json")
        for name in names
        if (RESULTS / f"review-{name}.json").exists()
    }
    lines = [
        "| data | model | sorted by | first 100 | first 500 | first 1000 | any unknown label |",
        "|---" * 7 + "|",
    ]
    gains = [
        "| data | labels | answered yes | test mAP | gain | seeds |",
        "|---" * 6 + "|",
    ]
    where = []
    for name, data in results.items():
        records = data["records"]
        groups: dict[tuple[str, str], list[Any]] = {}
        for record in records:
            groups.setdefault((record["stage"], record["row"]), []).append(record)
        for method in ("gr", "an"):
            rows = groups.get(("before", method), [])
            if not rows:
                continue
            base = mean(row["missing"] / row["unknown"] for row in rows)
            for order, words in orders.items():
                cells = [
                    f"{mean(r['precision'][order][depth] for r in rows):.1%}"
                    for depth in ("100", "500", "1000")
                ]
                lines.append(
                    f"| {names[name]} | {method} | {words} | {' | '.join(cells)} | {base:.1%} |"
                )
        start = {row["seed"]: row["test_map"] for row in groups["before", "gr"]}
        arms = {
            ("before", "gr"): "as observed, gr",
            ("after", "gr's list"): "and 500 answers, gr's list",
        }
        arms |= {
            ("after", "an's list"): "and 500 answers, an's list",
            ("after", "at random"): "and 500 answers, at random",
        }
        arms |= {("full", "full"): "all labels, full"}
        for key, words in arms.items():
            rows = groups.get(key, [])
            if rows:
                yes = (
                    f"{mean(row['positive'] for row in rows):.0f}" if "positive" in rows[0] else ""
                )
                gain = (
                    ""
                    if key[0] == "before"
                    else spread([row["test_map"] - start[row["seed"]] for row in rows], "+.2f")
                )
                maps = spread([row["test_map"] for row in rows], ".2f")
                gains.append(f"| {names[name]} | {words} | {yes} | {maps} | {gain} | {len(rows)} |")
        machine = data["environment"]["gpu"] or "CPU"
        version = data["environment"]["torch"]
        where.append(f"{names[name]}: {records[0]['backbone']}, {machine}, torch {version}")
    note = "Means ± standard deviations over seeds; the gain is computed seed by seed."
    return "\n".join([*lines, "", *gains, "", f"{note} {'. '.join(where)}."])


def review_validation() -> str:
    """Suggestions on validation rows of recorded runs on VOC2012."""
    groups: dict[str, list[Any]] = {}
    for row in load("review-validation.json"):
        groups.setdefault(row["method"], []).append(row)
    lines = [
        "| model | runs | first 100 | first 250 | first 500 | any unknown label |",
        "|---" * 6 + "|",
    ]
    for method, rows in groups.items():
        cells = [
            f"{mean(row['precision'][depth] for row in rows):.1%}"
            for depth in ("100", "250", "500")
        ]
        base = mean(row["missing"] / row["unknown"] for row in rows)
        lines.append(f"| {method} | {len(rows)} | {' | '.join(cells)} | {base:.1%} |")
    return "\n".join([*lines, "", f"{rows[0]['missing']} labels are missing in all."])


def mean(values: Iterable[float]) -> float:
    return statistics.mean(values)


def spread(values: list[float], form: str) -> str:
    return f"{mean(values):{form}}" + (
        f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    )


def estimator() -> str:
    lines = [
        "| data | items × features, classes | model | seconds | test mAP | F1 at 0.5 |",
        "|---" * 6 + "|",
    ]
    for row in load("estimator.json"):
        items, features, classes = row["size"]
        figures = f"{row['seconds']:.1f} | {row['map']:.1f} | {row['f1']:.1f}"
        lines.append(
            f"| {row['data']} | {items:,} × {features}, {classes} | {row['model']} | {figures} |"
        )
    return "\n".join(lines)


def load(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


TABLES: dict[str, Callable[[], str]] = {
    "losses": losses,
    "average_precision": average_precision,
    "decoding": decoding,
    "startup": startup,
    "resources": resources,
    "predict": predict,
    "kernel_choice": kernel_choice,
    "throughput": throughput,
    "throughput_before": throughput_before,
    "side_by_side": side_by_side,
    "throughput_cpu": throughput_cpu,
    "agreement": agreement,
    "review": review,
    "review_validation": review_validation,
    "estimator": estimator,
}


def render(text: str, tables: Mapping[str, Callable[[], str]] = TABLES) -> str:
    for name, table in tables.items():
        pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
        text = re.sub(
            pattern,
            lambda match, table=table: f"{match[1]}{table()}\n{match[2]}",
            text,
            flags=re.DOTALL,
        )
    return text


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(render(page.read_text(encoding="utf-8")), encoding="utf-8")
