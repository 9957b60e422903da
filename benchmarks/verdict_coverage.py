"""How often does the interval of a difference between two methods hold the truth?

python benchmarks/verdict_coverage.py          # writes results/verdict-coverage.json

Two methods are equal by construction: their scores have the same distribution. Pictures are hard
or easy for both, and for one of them; each training seed and each draw of the single positives
makes a method better or worse, and changes single scores. So the true difference is 0, and the
share of intervals that hold 0 is the coverage. `rule` is `spml.metrics.bootstrap.compare`; the
others are simpler intervals from the same figures: `pictures` resamples test pictures alone,
`bootstrap` resamples pictures, seeds and draws, `t over runs` ignores the test pictures.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from spml.files import write_json
from spml.metrics import mean_average_precision
from spml.metrics.bootstrap import Measured, compare, resampled_map

RECORD = Path(__file__).parent / "results" / "verdict-coverage.json"
ITEMS, CLASSES, SHARE, RESAMPLES = 400, 4, 0.15, 200
LARGE = 0.06  # effect of a seed or draw on the distance between positives and negatives
DESIGNS = {"3 seeds": (1, 3), "5 seeds": (1, 5), "3 draws x 3 seeds": (3, 3)}
EFFECTS = {
    "pictures": (0.0, 0.0),
    "pictures, small seeds": (LARGE / 3, 0.0),
    "pictures, large seeds": (LARGE, 0.0),
    "pictures, large seeds and draws": (LARGE, LARGE),
}
Array = npt.NDArray[np.float64]
Ends = tuple[float, float]


def measured(rng: np.random.Generator, draws: int, seeds: int, effects: Ends) -> list[Array]:
    """Return (figures, resampled maps) of two equal methods, by draw and seed."""
    truth = np.where(rng.random((ITEMS, CLASSES)) < SHARE, 1, -1).astype(np.int8)
    hard = rng.normal(size=truth.shape)
    shared = rng.normal(size=seeds) * effects[0] / 2  # a seed is good or bad for both
    out = []
    for _ in range(2):
        own = hard + 0.3 * rng.normal(size=truth.shape)
        of_seed = shared + effects[0] * rng.normal(size=seeds)
        of_draw = effects[1] * rng.normal(size=draws)
        maps = np.empty((draws, seeds, 1 + RESAMPLES))
        for draw, seed in np.ndindex(draws, seeds):
            distance = 1 + of_draw[draw] + of_seed[seed] + effects[0] / 2 * rng.normal()
            scores = distance * truth + own + 0.3 * rng.normal(size=truth.shape)
            maps[draw, seed, 0] = 100 * mean_average_precision(scores, truth)
            maps[draw, seed, 1:] = resampled_map(scores, truth, RESAMPLES)
        out.append(maps)
    return out


def rule(own: Array, other: Array, _: np.random.Generator) -> Ends:
    rows = [
        [Measured(d, s, row[d, s, 0], row[d, s, 1:]) for d, s in np.ndindex(row.shape[:2])]
        for row in (own, other)
    ]
    found = compare(*rows)
    return found.low, found.high


def pictures(own: Array, other: Array, _: np.random.Generator) -> Ends:
    low, high = np.quantile((own - other)[..., 1:].mean(axis=(0, 1)), (0.025, 0.975))
    return float(low), float(high)


def bootstrap(own: Array, other: Array, rng: np.random.Generator) -> Ends:
    gaps = own - other
    draws, seeds = gaps.shape[:2]
    means = [
        gaps[rng.integers(draws, size=draws)][:, rng.integers(seeds, size=seeds), column].mean()
        for column in range(1, 1 + RESAMPLES)
    ]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def over_runs(own: Array, other: Array, _: np.random.Generator) -> Ends:
    gaps = (own - other)[..., 0].ravel()
    reach = student.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))
    return float(gaps.mean() - reach), float(gaps.mean() + reach)


WAYS: Mapping[str, Callable[[Array, Array, np.random.Generator], Ends]] = {
    "rule": rule,
    "pictures": pictures,
    "bootstrap": bootstrap,
    "t over runs": over_runs,
}


def examined(design: str, effect: str, trials: int) -> list[dict[str, Any]]:
    """Return coverage and median width of every interval."""
    rng = np.random.default_rng([len(design), len(effect)])
    ends: dict[str, list[Ends]] = {way: [] for way in WAYS}
    for _ in range(trials):
        own, other = measured(rng, *DESIGNS[design], EFFECTS[effect])
        for way, interval in WAYS.items():
            ends[way].append(interval(own, other, rng))
    return [
        {
            "design": design,
            "varies": effect,
            "interval": way,
            "coverage": round(statistics.mean(low <= 0 <= high for low, high in some), 3),
            "width": round(statistics.median(high - low for low, high in some), 2),
            "trials": trials,
        }
        for way, some in ends.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    options = parser.parse_args()
    records = []
    for design in DESIGNS:
        for effect in EFFECTS:
            if design.startswith("3 draws") or not effect.endswith("draws"):
                records += examined(design, effect, options.trials)
                print(*records[-len(WAYS) :], sep="\n", flush=True)
    write_json(RECORD, records)


if __name__ == "__main__":
    main()
