"""Compare criteria, learning rates and cross-fitting on feature vectors, where models take seconds.

python benchmarks/selection_features.py tables --mirror DIR --data DATA    # DATA/tables/*.npz
python benchmarks/selection_features.py train --data DATA --out POOLS      # one .npz for each set
python benchmarks/selection_features.py judge --out POOLS                  # writes the record

DATA holds what `benchmarks/stage.py` writes: voc/features.npz and coco/features.npz. The mirror is
the git directory of github.com/nicoladimauro/dcsn, which holds public tables with many labels. The
models are linear and trained in memory, with the losses and the defaults of spml for feature
vectors. A criterion sees the observed labels of the validation rows, and is judged by test mAP on
complete labels. `train` keeps the sets that POOLS holds already.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from spml import losses
from spml.data import Experiment, load
from spml.metrics import mean_average_precision, observed_average_precision, selection_score
from spml.metrics.selection import estimated_positives
from spml.train.portfolio import portfolio
from spml.train.resolve import FEATURES, FEATURES_BATCH
from spml.use.calibrate.estimates import Evidence, Measure

RECORD = Path(__file__).parent / "results" / "selection-features.json"
COMMIT = "f346a3786e5a2e1db8e6b0092c7f1a96619f6d0c"
TABLES = {  # name -> whether the labels are the first columns
    "emotions": True,
    "birds": False,
    "plant978": False,
    "Arts1500": False,
    "Business1500": False,
    "Health1500": False,
    "rcv1subset1500": False,
    "rcv1subset2500": False,
}
FEWEST_POSITIVES = 8, 4  # of a class in the training and in the test rows
FINALISTS = ("ll_r", "em 0.2")  # trained to the end in every race; the third is the best rival
RATES = (0.3, 1.0, 3.0, 10.0)  # times the default
SHORT = (3, 1)  # epochs of short schedules
FOLDS = 5
CROSS_FITTED = 1500  # most rows of a set whose labels are held out fold by fold

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Set:
    """Where the items of a set come from, and how their positives are observed."""

    file: str
    observe: str = "uniform"
    rows: int = 10**9  # of the training list, validation rows included
    test: int = 10**9


SETS = {
    **{name: Set(f"tables/{name}.npz") for name in TABLES},
    "voc": Set("voc/features.npz"),
    "voc-20%": Set("voc/features.npz", rows=1144, test=3000),
    "voc-10%": Set("voc/features.npz", rows=572, test=3000),
    "voc-frequency": Set("voc/features.npz", observe="frequency"),
    "coco-3000": Set("coco/features.npz", rows=3000, test=3000),
    "coco": Set("coco/features.npz", rows=8000, test=3000),
}


def write_tables(mirror: Path, data: Path) -> None:
    """Write each table as .npz: items with a label, 70 % of them for training."""

    def blob(name: str) -> str:
        command = ["git", "-C", str(mirror), "cat-file", "-p", f"{COMMIT}:data/{name}"]
        return subprocess.check_output(command).decode("latin1")

    (data / "tables").mkdir(parents=True, exist_ok=True)
    for name, labels_first in TABLES.items():
        classes = re.findall(r'<label name="(.*?)"', blob(f"{name}.xml"))
        file = name if labels_first else f"{name}.orig"
        values = _arff(blob(f"{file}.arff"))
        cut = len(classes) if labels_first else values.shape[1] - len(classes)
        parts = values[:, :cut], values[:, cut:]
        labels, x = parts if labels_first else parts[::-1]
        order = np.random.default_rng(7).permutation(np.flatnonzero(labels.any(axis=1)))
        first = int(0.7 * len(order))
        kept = np.ones(len(classes), bool)
        for rows, fewest in zip((order[:first], order[first:]), FEWEST_POSITIVES, strict=True):
            kept &= labels[rows].sum(axis=0) >= fewest
        split = np.where(np.arange(len(order)) < first, "train", "test")
        some = labels[order][:, kept].any(axis=1)
        np.savez(
            data / "tables" / f"{name}.npz",
            x=x[order][some].astype(np.float32),
            labels=np.where(labels[order][some][:, kept] > 0, 1, -1).astype(np.int8),
            classes=np.array(classes)[kept],
            split=split[some],
        )


def _arff(text: str) -> Array:
    """Return the numbers of an ARFF file, dense or sparse."""
    head, body = re.split(r"(?im)^@data\s*$", text, maxsplit=1)
    columns = len(re.findall(r"(?im)^@attribute", head))
    rows = []
    for line in filter(None, map(str.strip, body.splitlines())):
        if line.startswith("{"):
            row = np.zeros(columns)
            for pair in filter(None, map(str.strip, line.strip("{} ").split(","))):
                place, value = pair.split()
                row[int(place)] = float(value)
            rows.append(row)
        elif not line.startswith("%"):
            rows.append(np.array(line.split(","), float))
    return np.stack(rows)


class Data:
    """The rows of a set, standardised when a model asks for them; pictures become vectors."""

    def __init__(self, whole: Experiment, rows: int = 10**9, test: int = 10**9) -> None:
        assert whole.complete is not None
        assert whole.test is not None
        assert whole.observed.x is not None
        assert whole.test.x is not None
        rng = np.random.default_rng(1)
        share = min(1.0, rows / len(whole.observed))
        self.train, self.val = (
            np.sort(rng.permutation(part)[: round(share * len(part))])
            for part in (whole.train_rows, whole.val_rows)
        )
        self.x, self.test_x = (
            x.reshape(len(x), -1).astype(np.float32)
            for x in (whole.observed.x, whole.test.x[:test])
        )
        self.observed, self.complete = whole.observed.labels, whole.complete.labels
        self.test = whole.test.labels[:test]

    def fit(self, train: Array, held_out: Array, candidate: Any, rate: float, epochs: int) -> Model:
        """Train on some rows; choose the epoch by the observed labels of the rows held out."""
        mean, deviation = self.x[train].mean(axis=0), self.x[train].std(axis=0)
        deviation = np.where(deviation > 1e-6, deviation, 1.0)
        x, held, test = (
            torch.from_numpy(((part - mean) / deviation).astype(np.float32))
            for part in (self.x[train], self.x[held_out], self.test_x)
        )
        batch = int(np.clip(len(train) // 50, *FEATURES_BATCH))
        torch.manual_seed(0)
        layer = torch.nn.Linear(x.shape[1], self.observed.shape[1])
        method = losses.create(candidate.method, **candidate.options)
        lr = rate * FEATURES.lr * FEATURES.head_lr
        optimizer = torch.optim.Adam(layer.parameters(), lr=lr)
        labels, rng = torch.from_numpy(self.observed[train]), np.random.default_rng(0)
        best = Model(-1.0, 0, np.empty(0), np.empty(0))
        for epoch in range(1, epochs + 1):
            order = torch.from_numpy(rng.permutation(len(x)))
            for rows in order.split(batch):
                optimizer.zero_grad()
                loss = method(layer(x[rows]), labels[rows], epoch=epoch, epochs=epochs, index=rows)
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                logits = layer(held).numpy()
            score = selection_score(logits, self.observed[held_out])
            if score > best.score:
                weights = [parameter.detach().clone() for parameter in layer.parameters()]
                best = Model(score, epoch, logits, F.linear(test, *weights).numpy())
        return best


@dataclass(frozen=True, eq=False)
class Model:
    """Logits of the rows held out and of the test rows, from the chosen epoch."""

    score: float
    epoch: int
    held_out: Array
    test: Array


def train_pool(name: str, folder: Path, out: Path) -> None:
    """Train every candidate at every rate, on complete and short schedules, and fold by fold."""
    chosen, start = SETS[name], time.perf_counter()
    whole = load(folder / chosen.file, labels="complete", observe=chosen.observe)
    data = Data(whole, chosen.rows, chosen.test)
    entries: dict[str, Any] = {
        "observed": data.observed[data.val],
        "complete": data.complete[data.val],
        "rows": len(data.train),
    }
    candidates = portfolio(positives=1.5)
    for candidate in candidates:
        for rate in RATES:
            for epochs in (FEATURES.epochs, *SHORT):
                model = data.fit(data.train, data.val, candidate, rate, epochs)
                key = f"{candidate.name}|{rate}|{epochs}"
                entries[f"{key}|val"] = model.held_out.astype(np.float32)
                entries[f"{key}|map"] = 100 * mean_average_precision(model.test, data.test)
    rows = np.sort(np.concatenate([data.train, data.val]))
    if len(rows) <= CROSS_FITTED:
        folds = np.array_split(np.random.default_rng(3).permutation(rows), FOLDS)
        for number, fold in enumerate(map(np.sort, folds)):
            entries[f"fold{number}/observed"] = data.observed[fold]
            for candidate in candidates:
                kept = np.setdiff1d(rows, fold)
                model = data.fit(kept, fold, candidate, 1.0, FEATURES.epochs)
                entries[f"fold{number}/{candidate.name}"] = model.held_out.astype(np.float32)
    entries["seconds"] = time.perf_counter() - start
    np.savez_compressed(out / f"{name}.npz", **entries)
    print(f"{name}: {entries['seconds']:.0f} s", flush=True)


def lee_liu(logits: Array, observed: Array) -> float:
    """Recall squared over the share of rows predicted, at each class's best threshold."""
    values = []
    for column in np.flatnonzero((observed == 1).any(axis=0)):
        order = np.argsort(-logits[:, column], kind="stable")
        positive = observed[order, column] == 1
        recall = np.cumsum(positive) / positive.sum()
        share = np.arange(1, len(order) + 1) / len(order)
        values.append((recall**2 / share).max())
    return float(np.mean(values))


def area_under_roc(logits: Array, observed: Array) -> float:
    """Chance that an observed positive is above another row of its class."""
    values = []
    for column in np.flatnonzero((observed == 1).any(axis=0)):
        ranks = np.argsort(np.argsort(logits[:, column], kind="stable"))
        positive = observed[:, column] == 1
        count, rest = positive.sum(), (~positive).sum()
        values.append((ranks[positive].sum() - count * (count - 1) / 2) / max(count * rest, 1))
    return float(np.mean(values))


def reciprocal_rank(logits: Array, observed: Array) -> float:
    """Mean reciprocal rank of an observed positive within its item."""
    rows, columns = np.nonzero(observed == 1)
    own = logits[rows, columns][:, None]
    return float(np.mean(1 / (logits[rows] >= own).sum(axis=1)))


def estimated_map(logits: Array, observed: Array) -> float:
    """The mAP that `spml eval` estimates."""
    evidence = Evidence.of_observed(logits, observed)
    figures = Measure(evidence.logits, None)(evidence.chances, np.ones(len(evidence.logits)))
    return float(figures["map"])


class Pool:
    """The models of a set."""

    def __init__(self, file: Path) -> None:
        with np.load(file) as stored:
            self.values = {key: stored[key] for key in stored}
        self.observed, self.complete = self.values["observed"], self.values["complete"]
        self.names = [candidate.name for candidate in portfolio(1.5)]

    def logits(self, name: str, rate: float = 1.0, epochs: int = FEATURES.epochs) -> Array:
        return np.asarray(self.values[f"{name}|{rate}|{epochs}|val"])

    def test(self, name: str, rate: float = 1.0, epochs: int = FEATURES.epochs) -> float:
        return float(self.values[f"{name}|{rate}|{epochs}|map"])

    def counts(self, names: list[str]) -> Array:
        """Numbers of positives of the validation rows, estimated from some candidates."""
        return estimated_positives([self.logits(name) for name in names], self.observed)

    def finalists(self) -> list[str]:
        """The candidates that a race trains to the end."""
        rivals = [name for name in self.names if name not in FINALISTS]
        short = {name: self.logits(name, epochs=1) for name in rivals}
        counts = estimated_positives(list(short.values()), self.observed)
        best = max(rivals, key=lambda name: selection_score(short[name], self.observed, counts))
        return [*FINALISTS, best]

    def cross_fitted(self) -> dict[str, float] | None:
        """Score of each candidate, the mean over folds that it was not trained on."""
        if "fold0/observed" not in self.values:
            return None
        scores = dict.fromkeys(self.names, 0.0)
        for number in range(FOLDS):
            observed = self.values[f"fold{number}/observed"]
            logits = {name: self.values[f"fold{number}/{name}"] for name in self.names}
            counts = estimated_positives(list(logits.values()), observed)
            for name in self.names:
                scores[name] += selection_score(logits[name], observed, counts) / FOLDS
        return scores


def criteria(pool: Pool) -> dict[str, Callable[[Array], float]]:
    """The criteria by name; each takes the logits of the validation rows."""
    observed = pool.observed
    every, three = pool.counts(pool.names), pool.counts(pool.finalists())
    true = np.maximum((pool.complete == 1).sum(axis=1), 1)
    return {
        "observed AP": lambda z: float(np.nanmean(observed_average_precision(z, observed))),
        "two positives per item": lambda z: selection_score(z, observed),
        "mean of the estimates": lambda z: selection_score(z, observed, three.mean()),
        "estimates of nine": lambda z: selection_score(z, observed, every),
        "estimates of the finalists": lambda z: selection_score(z, observed, three),
        "true positives": lambda z: selection_score(z, observed, true),
        "Lee and Liu": lambda z: lee_liu(z, observed),
        "area under the ROC": lambda z: area_under_roc(z, observed),
        "reciprocal rank in the item": lambda z: reciprocal_rank(z, observed),
        "estimate of spml calibrate": lambda z: estimated_map(z, observed),
        "complete labels": lambda z: float(mean_average_precision(z, pool.complete)),
    }


def judged(pool: Pool) -> dict[str, Any]:
    """Rank correlation with test mAP and regret of each criterion, over all rates and at one."""
    from scipy.stats import spearmanr

    models = [(name, rate) for name in pool.names for rate in RATES]
    rows: dict[str, Any] = {}
    usual = [index for index, (_, rate) in enumerate(models) if rate == 1.0]
    truth = np.array([pool.test(*model) for model in models])
    for label, rule in criteria(pool).items():
        values = np.array([rule(pool.logits(*model)) for model in models])
        rows[label] = {
            "correlation": float(spearmanr(values, truth)[0]),
            "regret": float(truth.max() - truth[values.argmax()]),
            "regret at the usual rate": float(
                truth[usual].max() - truth[usual][values[usual].argmax()]
            ),
        }
    folds = pool.cross_fitted()
    if folds is not None:
        own = np.array([folds[name] for name in pool.names])
        rows["cross-fitted"] = {
            "correlation at the usual rate": float(spearmanr(own, truth[usual])[0]),
            "regret at the usual rate": float(truth[usual].max() - truth[usual][own.argmax()]),
        }
    return rows


def choices(pool: Pool) -> dict[str, Any]:
    """Test mAP of what different races choose, all by the same criterion."""
    finalists = pool.finalists()
    counts = pool.counts(finalists)

    def best(models: list[tuple[str, float]]) -> float:
        chosen = max(
            models, key=lambda one: selection_score(pool.logits(*one), pool.observed, counts)
        )
        return pool.test(*chosen)

    every = [(name, 1.0) for name in pool.names]
    rates = [(name, rate) for name in pool.names for rate in (0.3, 1.0, 3.0)]
    folds = pool.cross_fitted()
    return {
        "an": pool.test("an"),
        "ll_r": pool.test("ll_r"),
        "the race": best([(name, 1.0) for name in finalists]),
        "all nine to the end": best(every),
        "all nine at three rates": best(rates),
        "cross-fitted": None if folds is None else pool.test(max(folds, key=lambda n: folds[n])),
        "best of nine": max(pool.test(*one) for one in every),
        "best of nine at three rates": max(pool.test(*one) for one in rates),
    }


def summary(out: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in SETS:
        if not (out / f"{name}.npz").exists():
            continue
        pool = Pool(out / f"{name}.npz")
        yield (
            name,
            {
                "rows": int(pool.values["rows"]),
                "validation_rows": len(pool.observed),
                "classes": pool.observed.shape[1],
                "positives": float((pool.complete == 1).sum(axis=1).mean()),
                "estimated_positives": float(pool.counts(pool.finalists()).mean()),
                "observed_per_class": float(np.median((pool.observed == 1).sum(axis=0))),
                "criteria": judged(pool),
                "choices": choices(pool),
            },
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("tables", "train", "judge"))
    parser.add_argument("--mirror", type=Path)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("build/selection-features"))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "tables":
        write_tables(options.mirror, options.data)
    elif options.command == "train":
        options.out.mkdir(parents=True, exist_ok=True)
        for name in options.sets:
            if not (options.out / f"{name}.npz").exists():
                train_pool(name, options.data, options.out)
    else:
        content = {"sets": dict(summary(options.out))}
        RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
