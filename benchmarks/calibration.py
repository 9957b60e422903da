"""Compare calibration from single positives with calibration from complete labels.

python benchmarks/calibration.py --make runs/calibration --seeds 3    # keeps existing runs
python benchmarks/calibration.py --scores voc=FOLDER --out FILE       # FOLDER holds run folders
python benchmarks/calibration.py --docs docs/calibration.md           # write the tables of the page

Thresholds and lines come from validation items and are measured on the test split. Each run is
calibrated with its own observed labels, and with more draws of one positive per validation item
that were not used in training.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from calibration_tables import put_tables
from common import run_all
from sklearn.isotonic import IsotonicRegression

from spml import metrics
from spml.files import write_json
from spml.methods.parts.priors import estimate_priors
from spml.metrics.draw import draw
from spml.metrics.reliability import reliability
from spml.model.calibration import apply_lines
from spml.use.calibrate.estimates import Evidence, Measure, estimate
from spml.use.calibrate.fit import Target, fit_lines, thresholds

RESULTS = Path("benchmarks/results")
METHODS, DATA = ("an", "gr", "em", "full"), ("digits", "digits-many")
Array = npt.NDArray[Any]
Map = Callable[[Array], Array]


def make(data: str, method: str, seed: int, out: Path, folder: Path) -> Path:
    """Train one run; the observed labels depend on the seed."""
    import torch

    from spml.data import load
    from spml.train import Settings, fit

    torch.set_num_threads(1)
    settings = Settings(method=method, seed=seed, observe_seed=1200 + seed, accelerator="cpu")
    fit(load(data, observe_seed=1200 + seed), settings, out, quiet=True)
    return out


def sigmoid(z: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-z)))


def by_lines(z: Array, chances: Array, shape: Any) -> Map:
    knots = fit_lines(z, chances, shape)
    return lambda new: sigmoid(apply_lines(new, knots))


def by_isotonic(z: Array, targets: Array) -> Map:
    """Isotonic regression of each class's targets, which may be above 1, cut to probabilities."""
    lines = [
        IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(z[:, c], targets[:, c])
        for c in range(z.shape[1])
    ]
    return lambda new: np.stack([line.predict(new[:, c]) for c, line in enumerate(lines)], axis=1)


def from_observed(z: Array, observed: Array, k: float) -> dict[str, tuple[Map, Array]]:
    """Ways to calibrate from observed labels: the probabilities and class priors of each."""
    evidence = Evidence.of_observed(z, observed)
    with_k = Evidence.of_observed(z, observed, k)
    fit = evidence.fit
    assert fit is not None
    present = draw(fit.logits(z), observed).present
    # the propensity of an observed class is 1 / the expected number of positives of its item
    weights = (observed == 1) * evidence.chances.sum(axis=1, keepdims=True)
    crisp = np.nan_to_num(estimate_priors(z, observed).numpy(), nan=1 / len(z))
    share = np.maximum((observed == 1).mean(axis=0), 1e-9)
    return {
        "draw, temperature": (
            by_lines(z, evidence.chances, "temperature"),
            evidence.chances.mean(axis=0),
        ),
        "draw, isotonic": (
            by_lines(z, evidence.chances, "isotonic"),
            evidence.chances.mean(axis=0),
        ),
        "draw, k given": (by_lines(z, with_k.chances, "temperature"), with_k.chances.mean(axis=0)),
        "draw alone": (lambda new: sigmoid(fit.logits(new)), present.mean(axis=0)),
        "inverse propensity": (by_isotonic(z, weights), weights.mean(axis=0)),
        "CRISP priors": (by_isotonic(z, (observed == 1) * crisp / share), crisp),
    }


def judged(predicted: Array, truth: Array, p: Array | None) -> dict[str, float | None]:
    measure = Measure(np.zeros(truth.shape), predicted)(
        (truth == 1).astype(float), np.ones(len(truth))
    )
    error = None if p is None else 100 * reliability(p, truth == 1).error
    return {
        "macro_f1": 100 * float(measure["macro_f1"]),
        "micro_f1": 100 * float(measure["micro_f1"]),
        "ece": error,
    }


def compared(
    z: Array, observed: Array, truth: Array, new: Array, new_truth: Array
) -> dict[str, dict[str, Any]]:
    """Figures of every way on new items, with F1 thresholds from the old items."""
    complete = (truth == 1).astype(np.float64)
    k, prior = float(complete.sum(axis=1).mean()), complete.mean(axis=0)
    ways: dict[str, tuple[Map, Array]] = {
        "complete, temperature": (by_lines(z, complete, "temperature"), prior),
        "complete, isotonic": (by_lines(z, complete, "isotonic"), prior),
        **from_observed(z, observed, k),
    }
    rows: dict[str, dict[str, Any]] = {}
    for name, (probability, priors) in ways.items():
        p = probability(new)
        rows[name] = judged(p >= thresholds(probability(z), Target()), new_truth, p)
        rows[name]["prior_error"] = 100 * float(np.abs(priors - prior).mean())
        rows[name]["positives"] = float(priors.sum())
    best = _cuts(z, complete)
    rows["complete, best cut"] = judged(new >= best, new_truth, None)
    rows["threshold 0.5"] = judged(new >= 0, new_truth, sigmoid(new))
    top = max(1, round(k))
    rows["top k, k given"] = judged(
        metrics.items.top_k(new, np.ones(new.shape, np.int8), top), new_truth, None
    )
    share = np.minimum(k * (observed == 1).mean(axis=0), 1)
    cut = np.array([np.quantile(z[:, c], 1 - share[c]) for c in range(z.shape[1])])
    rows["k × observed share"] = judged(new >= cut, new_truth, None)
    rows["k × observed share"] |= {
        "prior_error": 100 * float(np.abs(share - prior).mean()),
        "positives": k,
    }
    return rows


def _cuts(z: Array, complete: Array) -> Array:
    """The threshold of each class with the best F1 on these items."""
    order = np.argsort(-z, axis=0)
    right = np.cumsum(np.take_along_axis(complete, order, axis=0), axis=0)
    f1 = 2 * right / (np.arange(1, len(z) + 1)[:, None] + complete.sum(axis=0))
    return np.take_along_axis(
        np.take_along_axis(z, order, axis=0), f1.argmax(axis=0)[None], axis=0
    )[0]


def halves(z: Array, observed: Array, truth: Array) -> dict[str, float]:
    """Macro-F1 of each way on the half of the validation items that it was not fitted to."""
    half = np.random.default_rng(0).permutation(len(z)) < len(z) // 2
    parts = [
        compared(*(a[side] for a in (z, observed, truth)), z[~side], truth[~side])
        for side in (half, ~half)
    ]
    return {name: float(np.mean([part[name]["macro_f1"] for part in parts])) for name in parts[0]}


def estimated(z: Array, observed: Array, truth: Array) -> dict[str, Any]:
    """Estimated and true figures of validation items at the thresholds of `draw, temperature`."""
    evidence = Evidence.of_observed(z, observed)
    probability = by_lines(z, evidence.chances, "temperature")
    tags = probability(z) >= thresholds(probability(z), Target())
    estimates = estimate(z, observed, tags)
    true = Measure(z, tags)((truth == 1).astype(float), np.ones(len(z)))
    return {
        name: {"true": float(true[name]), "told": list(values)}
        for name, values in estimates.items()
    }


def epochs(scores: list[Array], observed: Array, truth: Array) -> dict[str, list[float]]:
    """Figures that could choose the epoch, and the true mAP, after each epoch."""
    rows: dict[str, list[float]] = {}
    share = np.maximum((observed == 1).mean(axis=0), 1e-9)
    for z in scores:
        evidence = Evidence.of_observed(z, observed)
        assert evidence.fit is not None
        inverse = (observed == 1) * evidence.chances.sum(axis=1, keepdims=True)
        own = metrics.observed_average_precision(z, observed)
        scaled = np.minimum(own * evidence.chances.mean(axis=0) / share, 1)
        values = {
            "true": metrics.mean_average_precision(z, truth),
            "observed AP": metrics.selection_score(z, observed),
            "draw": Measure(z, None)(evidence.chances, np.ones(len(z)))["map"],
            "observed AP, scaled": np.nanmean(scaled),
            "inverse propensity": Measure(z, None)(inverse, np.ones(len(z)))["map"],
            "likelihood of the draw": draw(evidence.fit.logits(z), observed).log_likelihood.mean(),
        }
        for name, value in values.items():
            rows.setdefault(name, []).append(100 * float(value))
    return rows


def redrawn(truth: Array, seed: int) -> npt.NDArray[np.int8]:
    rng = np.random.default_rng(seed)
    observed = np.zeros(truth.shape, np.int8)
    observed[
        np.arange(len(truth)), np.where(truth == 1, rng.random(truth.shape), -1).argmax(axis=1)
    ] = 1
    return observed * (truth == 1)


def examined(data: str, run: Path, draws: int, folder: Path) -> list[dict[str, Any]]:
    result = json.loads((run / "result.json").read_text())
    labels, stored = np.load(run / "labels.npz"), np.load(run / "observed.npz")
    truth, new_truth = labels["val_truth"], labels["test_truth"]
    names = [run / "scores" / f"val-{epoch:02d}.npz" for epoch in range(1, result["epochs"] + 1)]
    scores = [np.load(name)["logits"].astype(np.float64) for name in names]
    z, new = (
        scores[result["best_epoch"] - 1],
        np.load(run / "scores" / "test.npz")["logits"].astype(np.float64),
    )
    records = []
    for number in range(draws):
        own = stored["observed"][stored["val_rows"]]
        observed = (own == 1).astype(np.int8) if number == 0 else redrawn(truth, number)
        records.append(
            {
                "data": data,
                "method": result["method"],
                "seed": result["seed"],
                "draw": number,
                "items": len(z),
                "positives": float((truth == 1).sum(axis=1).mean()),
                "test_map": result["test_map"],
                "test": compared(z, observed, truth, new, new_truth),
                "halves": halves(z, observed, truth),
                "estimates": estimated(z, observed, truth),
                "epochs": epochs(scores, observed, truth),
            }
        )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="train digits runs there")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--scores",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="run folders with scores",
    )
    parser.add_argument(
        "--draws", type=int, default=3, help="of the observed labels of validation items"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=RESULTS / "calibration-digits.json")
    parser.add_argument(
        "--docs", type=Path, metavar="PAGE", help="write the tables there instead of running"
    )
    options = parser.parse_args()
    if options.docs is not None:
        put_tables(options.docs, RESULTS)
        return
    runs: list[tuple[str, Path]] = []
    if options.make is not None:
        wanted = [
            (d, m, s, options.make / f"{d}-{m}-{s}")
            for d in DATA
            for m in METHODS
            for s in range(options.seeds)
        ]
        missing = [job for job in wanted if not (job[3] / "result.json").exists()]
        run_all(make, missing, options.jobs, lambda done: print("trained", done.name, flush=True))
        runs += [(data, out) for data, _, _, out in wanted]
    for pair in options.scores:
        name, _, folder = pair.partition("=")
        runs += [(name, run.parent) for run in sorted(Path(folder).glob("*/result.json"))]
    records: list[dict[str, Any]] = []
    run_all(
        examined, [(data, run, options.draws) for data, run in runs], options.jobs, records.extend
    )
    records.sort(key=lambda r: (r["data"], r["method"], r["seed"], r["draw"]))
    write_json(
        options.out, json.loads(json.dumps(records), parse_float=lambda text: round(float(text), 4))
    )


if __name__ == "__main__":
    main()
