"""Compare AN, EM, GR and the upper bound over a grid of scene settings of digits.

python benchmarks/digits_grid.py --out benchmarks/results/digits-grid.json    # keeps finished runs
python benchmarks/digits_grid.py --docs docs/digits.md                        # writes the tables
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import put_table, run_all

from spml.data.readers.digits import SETTINGS, Scenes, read_digits
from spml.files import write_json

BASE = SETTINGS["digits"]
FLAT = (0.1,) * 10
TWO = (0.30, 0.35, 0.20, 0.10, 0.05)  # 2.25 labels per scene
SCENES = {
    "digits": BASE,
    "digits-many": SETTINGS["digits-many"],
    "one label each": replace(BASE, counts=(1.0, 0, 0, 0, 0)),
    "2.25 labels": replace(BASE, counts=TWO),
    "flat classes": replace(BASE, frequencies=FLAT),
    "flat classes, 2.25 labels": replace(BASE, frequencies=FLAT, counts=TWO),
    "flat classes, many": replace(SETTINGS["digits-many"], frequencies=FLAT),
    "independent classes": replace(BASE, affinity=1.0, aversion=1.0),
    "strong groups": replace(BASE, affinity=10.0, aversion=0.05),
    "noisier (48)": replace(BASE, noise=48.0),
    "1,000 scenes": replace(BASE, sizes=(1000, 750, 2000)),
    "9,000 scenes": replace(BASE, sizes=(9000, 750, 2000)),
}
GRID: dict[str, tuple[Scenes, dict[str, float]]] = {
    **{name: (scenes, {}) for name, scenes in SCENES.items()},
    "digits, 30 epochs": (BASE, {"epochs": 30}),
    "digits, lr 0.001": (BASE, {"lr": 1e-3}),
    **{f"{name}, lr 0.01": (scenes, {"lr": 1e-2}) for name, scenes in SCENES.items()},
}
METHODS = ("an", "em", "gr", "full")


def run(name: str, method: str, seed: int, folder: Path) -> dict[str, object]:
    import torch

    from spml.data import load
    from spml.metrics import selection_score
    from spml.train import Settings, fit
    from spml.train.resolve import DIGITS

    torch.set_num_threads(1)
    scenes, training = GRID[name]
    source = folder / f"{name}-{os.getpid()}.npz"
    if not source.exists():
        tables = read_digits(scenes)
        np.savez(
            source,
            x=np.concatenate([table.x for table in tables.values()]),
            labels=np.concatenate([table.labels for table in tables.values()]),
            classes=np.array(tables["train"].classes),
            split=np.repeat(list(tables), [len(table) for table in tables.values()]),
        )
    experiment = load(source, labels="complete")
    settings = Settings(
        method=method,
        backbone=DIGITS.backbone,
        epochs=int(training.get("epochs", DIGITS.epochs)),
        batch_size=DIGITS.batch_size,
        lr=training.get("lr", DIGITS.lr),
        flip=DIGITS.flip,
        seed=seed,
        accelerator="cpu",
    )
    out = folder / f"{name}-{method}-{seed}"
    result = fit(experiment, settings, out, quiet=True, overwrite=True)
    history = [
        json.loads(line)["val_map"] for line in (out / "history.jsonl").read_text().splitlines()
    ][1:]
    observed = experiment.observed.rows(experiment.val_rows)
    scores = [
        np.load(out / "scores" / f"val-{epoch:02d}.npz")["logits"]
        for epoch in range(1, len(history) + 1)
    ]
    estimates = [selection_score(logits.astype(np.float32), observed) for logits in scores]
    chosen = int(np.argmax(estimates))
    keys = ("test_map", "val_map", "best_epoch", "epochs", "observed_sha256")
    return {
        "setting": name,
        "method": method,
        **{key: result[key] for key in keys},
        "seed": seed,
        "observed_choice": {"epoch": chosen + 1, "val_map": history[chosen]},
        "positives": float((experiment.complete.labels == 1).sum(1).mean()),
        "torch": torch.__version__,
    }


def run_missing(out: Path, seeds: int, jobs: int, only: list[str]) -> None:
    """Run the cases that are not in the file yet."""
    done = json.loads(out.read_text()) if out.exists() else []
    have = {(r["setting"], r["method"], r["seed"]) for r in done}
    todo = [
        (n, m, s)
        for n in only or GRID
        for m in METHODS
        for s in range(seeds)
        if (n, m, s) not in have
    ]

    def keep(last: dict[str, object]) -> None:
        done.append(last)
        done.sort(
            key=lambda r: (list(GRID).index(r["setting"]), METHODS.index(r["method"]), r["seed"])
        )
        write_json(out, done)
        print(
            f"{last['setting']:<28} {last['method']:<5} {last['seed']}  {last['test_map']:.2f}",
            flush=True,
        )

    run_all(run, todo, jobs, keep)


def tables(results: list[dict[str, object]]) -> str:
    """Markdown: test mAP of every setting, and the cost of choosing epochs by single positives."""
    lines = [
        "| setting | labels per scene | " + " | ".join(METHODS) + " | gr − an | gr − em |",
        "|---" * 8 + "|",
    ]
    for name in GRID:
        runs = [r for r in results if r["setting"] == name]
        maps = {m: [float(r["test_map"]) for r in runs if r["method"] == m] for m in METHODS}
        if min(map(len, maps.values())) < 2:
            continue
        mean = {m: statistics.mean(values) for m, values in maps.items()}
        cells = [f"{mean[m]:.2f} ± {statistics.stdev(maps[m]):.2f}" for m in METHODS]
        gains = [f"{mean['gr'] - mean[other]:+.2f}" for other in ("an", "em")]
        lines.append(f"| {name} | {runs[0]['positives']:.2f} | " + " | ".join(cells + gains) + " |")
    lost = {
        m: [r["val_map"] - r["observed_choice"]["val_map"] for r in results if r["method"] == m]
        for m in METHODS
    }
    lines += [
        "",
        "| validation mAP lost by choosing with single positives | mean | largest | runs |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {m} | {statistics.mean(v):.2f} | {max(v):.2f} | {len(v)} |"
        for m, v in lost.items()
        if m != "full"
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/digits-grid.json"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", action="append", default=[], choices=list(GRID))
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    if options.docs is None:
        run_missing(options.out, options.seeds, options.jobs, options.only)
    else:
        put_table(options.docs, "digits_grid", tables(json.loads(options.out.read_text())))


if __name__ == "__main__":
    main()
