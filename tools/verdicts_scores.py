"""Statements on stored scores of GR and AN, for verdicts_check.py; a jackknife over images."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2_contingency, spearmanr, wasserstein_distance
from sklearn.metrics import average_precision_score, roc_auc_score
from verdicts_rule import (
    EITHER,
    NO,
    PARTLY,
    RUNS,
    YES,
    Array,
    Found,
    Gap,
    Listed,
    gap_of,
    some_of,
    thirds,
)

SCORES = {method: sorted(RUNS.glob(f"scores/{method}-*")) for method in ("gr", "an")}


@lru_cache
def arrays(path: Path) -> dict[str, Array]:
    """Arrays of a stored file."""
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def confidences(folder: Path, epoch: int) -> tuple[Array, Array, Array]:
    """Confidence, whether positive, and the image of each unknown validation label."""
    labels, seen = arrays(folder / "labels.npz"), arrays(folder / "observed.npz")
    unknown = seen["observed"][seen["val_rows"]] == 0
    logits = arrays(folder / "scores" / f"val-{epoch:02d}.npz")["logits"].astype(np.float64)
    truth = labels["val_truth"] == 1
    return 1 / (1 + np.exp(-logits[unknown])), truth[unknown], np.nonzero(unknown)[0]


def result(folder: Path) -> dict[str, Any]:
    """Result of a run."""
    return dict(json.loads((folder / "result.json").read_text()))


Statistic = Callable[[Path, Callable[[Array], Array]], float]


def of_labels(compute: Callable[[Array, Array], float], epoch: int | None = None) -> Statistic:
    """A statistic of unknown labels at an epoch, by default the best one."""

    def statistic(folder: Path, keep: Callable[[Array], Array]) -> float:
        at = result(folder)["best_epoch"] if epoch is None else epoch
        p, positive, image = confidences(folder, at)
        chosen = keep(image)
        return compute(p[chosen], positive[chosen])

    return statistic


def tail_of_scores(folder: Path, keep: Callable[[Array], Array]) -> float:
    """AP of the tail third minus that of the head third, over some test images."""
    seen = arrays(folder / "observed.npz")
    head, last = thirds((seen["observed"][seen["train_rows"]] == 1).sum(axis=0))
    truth = arrays(folder / "labels.npz")["test_truth"]
    logits = arrays(folder / "scores" / "test.npz")["logits"].astype(np.float64)
    chosen = keep(np.arange(len(truth)))
    means = []
    for part in (head, last):
        known = [chosen & (truth[:, c] != 0) for c in part]
        ap = [
            average_precision_score(truth[k, c] == 1, logits[k, c])
            for c, k in zip(part, known, strict=True)
        ]
        means.append(100 * float(np.mean(ap)))
    return means[1] - means[0]


def of_scores(
    statistic: Statistic, groups: int, against: float | None = None, seeds: Sequence[int] = range(4)
) -> Gap:
    """GR minus AN, or minus a number, over seeds and images; these by a jackknife of groups."""
    gr, an = ([one for one in SCORES[m] if result(one)["seed"] in seeds] for m in ("gr", "an"))

    def gaps(left: int | None) -> list[float]:
        def keep(image: Array) -> Array:
            return image % groups != left if left is not None else np.ones(len(image), bool)

        own = [statistic(folder, keep) for folder in gr]
        if against is not None:
            return [value - against for value in own]
        return [value - statistic(folder, keep) for value, folder in zip(own, an, strict=True)]

    left_out = np.array([gaps(group) for group in range(groups)])
    centred = left_out - left_out.mean(axis=0)
    covariance = (groups - 1) / groups * centred.T @ centred
    return gap_of(np.array(gaps(None)), covariance, list(seeds), [0] * len(seeds))


def apart(p: Array, positive: Array) -> float:
    """Wasserstein distance of positives and negatives."""
    return float(wasserstein_distance(p[positive], p[~positive]))


def distances(_: Listed) -> Found:
    """GR minus AN in each epoch."""
    found = [of_scores(of_labels(apart, epoch), 12) for epoch in range(1, 9)]
    return [min(found, key=lambda gap: gap.value)], some_of(gap.sign for gap in found)


def histograms(_: Listed) -> Found:
    """Shares of negatives around 0.2 and of positives close to 1."""

    def around(p: Array, positive: Array) -> float:
        return 100 * float(((p[~positive] >= 0.1) & (p[~positive] < 0.3)).mean())

    def close(p: Array, positive: Array) -> float:
        return 100 * float((p[positive] >= 0.9).mean())

    sides = [of_scores(of_labels(one), 100, 50) for one in (around, close)]
    return [*sides, of_scores(of_labels(close), 100)], some_of(gap.sign for gap in sides)


def binned(folder: Path, epoch: int) -> tuple[Array, Array, Array]:
    """Mean confidence, positives and labels of each of 100 bins."""
    p, positive, _ = confidences(folder, epoch)
    bins = np.minimum((p * 100).astype(int), 99)
    labels, hits = np.bincount(bins, minlength=100), np.bincount(bins[positive], minlength=100)
    there = labels > 0
    return np.bincount(bins, p, 100)[there] / labels[there], hits[there], labels[there]


def before(_: Listed) -> Found:
    """Assumption 1."""
    gap = of_scores(of_labels(lambda p, y: 100 * float(roc_auc_score(y, p)), 0), 50, 50)
    chances = []
    for folder in SCORES["gr"]:
        _, hits, labels = binned(folder, 0)
        often = labels * hits.sum() / labels.sum() >= 5
        table = [[h, n - h] for h, n in zip(hits[often], labels[often], strict=True)]
        rest = int(labels[~often].sum())
        table += [[int(hits[~often].sum()), rest - int(hits[~often].sum())]] if rest else []
        chances.append(float(chi2_contingency(np.array(table).T, correction=False).pvalue))
    rejected = sum(chance < 0.05 / len(chances) for chance in chances)
    if gap.sign or rejected == len(chances):
        return [gap], NO
    return [gap], PARTLY if rejected else YES


def after(_: Listed) -> Found:
    """Assumption 2."""
    ranks, shares = [], []
    for folder in SCORES["gr"]:
        p, hits, labels = binned(folder, 8)
        many = labels >= 10
        p, hits, labels = p[many], hits[many], labels[many]
        ranks.append(float(spearmanr(p, hits / labels).statistic))
        a = 1 / 1.46
        expected, share, z = (1 - a) * p / (1 - a * p), hits / labels, 1.96
        middle = (share + z * z / (2 * labels)) / (1 + z * z / labels)
        half = np.sqrt(share * (1 - share) / labels + z * z / (4 * labels**2))
        shares.append(float((np.abs(expected - middle) <= z * half / (1 + z * z / labels)).mean()))
    rises = min(ranks) > 0.8
    partly = PARTLY if rises else EITHER
    return [], YES if rises and min(shares) > 0.9 else partly
