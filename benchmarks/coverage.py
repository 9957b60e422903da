"""How often does the stated range of an estimate hold the truth?

python benchmarks/coverage.py          # writes results/coverage.json

Linear models are trained in memory with the candidates of `--method auto` on made-up data. The
validation rows of each are observed three times. Estimates come from observed labels alone; they
are compared with the truth on the same rows (`true`), and on test rows (`test`), which are tagged
by the thresholds of the validation rows. `given` holds the estimates if the mean number of
positives of an item is known; the record has them for the first draw.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from calibration import by_lines, redrawn
from selection_features import Data
from sklearn.datasets import make_multilabel_classification

from spml.data import load
from spml.files import write_json
from spml.train.portfolio import portfolio
from spml.train.resolve import FEATURES
from spml.use.calibrate.estimates import Evidence, Measure, estimate
from spml.use.calibrate.fit import Target, thresholds

RECORD = Path(__file__).parent / "results" / "coverage.json"
TEST_ROWS = 2000
DRAWS = 3
Array = npt.NDArray[Any]
Table = tuple[Array, Array]


def words(rows: int, classes: int, labels: int) -> Table:
    """Counts of words, whose frequency depends on the labels."""
    x, y = make_multilabel_classification(
        rows + TEST_ROWS, 6 * classes, n_classes=classes, n_labels=labels, allow_unlabeled=False,
        random_state=classes,
    )  # fmt: skip
    return x.astype(np.float32), y


def factors(rows: int, classes: int, positives: float) -> Table:
    """Correlated labels of latent factors, seen with noise; rare classes are ten times as rare."""
    rng = np.random.default_rng(classes)
    hidden = rng.normal(size=(3 * (rows + TEST_ROWS), 8))
    scores = 1.5 * hidden @ rng.normal(size=(8, classes)) / np.sqrt(8)
    scores += rng.normal(size=scores.shape)
    shares = np.geomspace(1, 0.1, classes)
    cuts = [
        np.quantile(scores[:, c], 1 - share)
        for c, share in enumerate(positives * shares / shares.sum())
    ]
    y = scores > cuts
    kept = np.flatnonzero(y.any(axis=1))[: rows + TEST_ROWS]
    x = np.hstack([hidden, np.tanh(hidden @ rng.normal(size=(8, 24)))])[kept]
    return (x + rng.normal(size=x.shape)).astype(np.float32), y[kept]


SETS: dict[str, tuple[Callable[[], Table], str]] = {
    "words, 8 classes": (lambda: words(500, 8, 2), "uniform"),
    "words, 20 classes": (lambda: words(1500, 20, 3), "uniform"),
    "words, 40 classes": (lambda: words(3000, 40, 6), "uniform"),
    "factors, 12 classes": (lambda: factors(500, 12, 1.0), "uniform"),
    "factors, 20 classes": (lambda: factors(3000, 20, 1.2), "uniform"),
    "factors, 20 classes, by frequency": (lambda: factors(3000, 20, 1.2), "frequency"),
    "factors, 60 classes": (lambda: factors(3000, 60, 3.0), "uniform"),
}


def data_of(name: str) -> Data:
    make, observe = SETS[name]
    x, y = make()
    with tempfile.TemporaryDirectory() as folder:
        np.savez(
            Path(folder) / "made.npz",
            x=x,
            labels=np.where(y, 1, -1).astype(np.int8),
            classes=np.array([f"c{number}" for number in range(y.shape[1])]),
            split=np.where(np.arange(len(y)) < len(y) - TEST_ROWS, "train", "test"),
        )
        return Data(load(Path(folder) / "made.npz", labels="complete", observe=observe))


def compared(z: Array, observed: Array, truth: Array, new: Array, new_truth: Array) -> Any:
    """Estimated figures of validation rows, and the true ones there and on new rows."""
    evidence = Evidence.of_observed(z, observed)
    probability = by_lines(z, evidence.chances, "temperature")
    cuts = thresholds(probability(z), Target())
    tags, new_tags = probability(z) >= cuts, probability(new) >= cuts
    true = Measure(z, tags)((truth == 1).astype(float), np.ones(len(z)))
    test = Measure(new, new_tags)((new_truth == 1).astype(float), np.ones(len(new)))
    known = estimate(z, observed, tags, float((truth == 1).sum(axis=1).mean()))
    return {
        name: {
            "true": float(true[name]),
            "test": float(test[name]),
            "told": list(values),
            "given": list(known[name]),
        }
        for name, values in estimate(z, observed, tags).items()
    }


def examined(name: str) -> list[dict[str, Any]]:
    data, records = data_of(name), []
    truth = data.complete[data.val]
    for candidate in portfolio(positives=1.5):
        model = data.fit(data.train, data.val, candidate, 1.0, FEATURES.epochs)
        z, new = model.held_out.astype(np.float64), model.test.astype(np.float64)
        for draw in range(DRAWS):
            observed = data.observed[data.val] if draw == 0 else redrawn(truth, draw)
            records.append(
                {
                    "data": name,
                    "method": candidate.name,
                    "draw": draw,
                    "items": len(z),
                    "positives": float((truth == 1).sum(axis=1).mean()),
                    "estimates": compared(z, observed, truth, new, data.test),
                }
            )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = []
    for name in options.sets:
        records += examined(name)
        print(name, flush=True)
    rounded = json.loads(json.dumps(records), parse_float=lambda text: round(float(text), 4))
    write_json(RECORD, rounded)


if __name__ == "__main__":
    main()
