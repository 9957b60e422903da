"""Statements on confidences and classes, from the stored scores of AN and GR with all seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from recorded import interval
from verdicts import EITHER, NO, PARTLY, YES, Claim, parts, waiting

from spml.analysis.confidences import Assumptions, Unknown, assumptions, unknown_labels
from spml.metrics.bootstrap import SEED, Comparison, Measured, compare, resampled_map
from spml.runs.run import Run

BINS, RESAMPLES = 200, 200
SURE = 0.05
Array = npt.NDArray[np.float64]
Statistic = Callable[[Array, Array], Array]


@dataclass(frozen=True, eq=False)
class Family:
    """The runs of one method in one setting that differ only in their seeds."""

    runs: tuple[Unknown, ...]

    @classmethod
    def of(cls, one: Unknown) -> Family:
        """Return all stored runs of this run's setting."""
        folder = one.run.folder
        stem = folder.name.rpartition("-")[0]
        return cls(tuple(map(unknown_labels, sorted(folder.parent.glob(f"{stem}-*")))))

    @cached_property
    def ends(self) -> list[Assumptions]:
        return [assumptions(run, run.observed_share) for run in self.runs]

    def best(self, run: Unknown) -> int:
        return int(run.result["best_epoch"])


def tallied(run: Unknown, epoch: int, ranked: bool = False) -> tuple[Array, Array]:
    """Counts of confidences of positives and negatives in equal bins, for each resample of rows.

    Row 0 holds all rows once. `ranked` takes bins of equal counts.
    """
    p = run.at(epoch)
    value = p.argsort().argsort() / len(p) if ranked else p
    place = np.minimum((value * BINS).astype(int), BINS - 1)
    row, rows = np.nonzero(run.mask)[0], len(run.mask)
    weights = _weights(rows)
    counts = [
        np.bincount(row[kind] * BINS + place[kind], minlength=rows * BINS).reshape(rows, BINS)
        for kind in (run.positive, ~run.positive)
    ]
    return weights @ counts[0], weights @ counts[1]


@lru_cache
def _weights(rows: int) -> Array:
    rng = np.random.RandomState(SEED)
    drawn = [np.bincount(rng.randint(rows, size=rows), minlength=rows) for _ in range(RESAMPLES)]
    return np.array([np.ones(rows), *drawn])


def distance(positives: Array, negatives: Array) -> Array:
    """Wasserstein-1 distance."""
    shares = [
        part.cumsum(axis=1) / part.sum(axis=1, keepdims=True) for part in (positives, negatives)
    ]
    return np.abs(shares[0] - shares[1]).sum(axis=1) / BINS


def higher(positives: Array, negatives: Array) -> Array:
    """How often in percent a positive has more confidence than a negative."""
    below = negatives.cumsum(axis=1) - negatives / 2
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    return 100 * (positives * below).sum(axis=1) / pairs


def share(which: int, low: float, high: float) -> Statistic:
    """Percent of the positives (0) or negatives (1) with a confidence between two limits."""
    part = slice(round(low * BINS), round(high * BINS))
    return lambda *counts: 100 * counts[which][:, part].sum(axis=1) / counts[which].sum(axis=1)


def measured(run: Unknown, epoch: int, statistic: Statistic, ranked: bool = False) -> Measured:
    values = statistic(*tallied(run, epoch, ranked))
    config = run.run.config
    return Measured(config["observe_seed"], config["seed"], float(values[0]), values[1:])


def to(value: float, rows: Sequence[Measured]) -> Comparison:
    """Compare a statistic with a number."""
    fixed = [Measured(row.draw, row.seed, value, np.full(RESAMPLES, value)) for row in rows]
    return compare(rows, fixed)


def distances(families: Sequence[Family]) -> Claim:
    paper = (
        "The Wasserstein distance between positives and negatives is greater for GR than for AN "
        "in every epoch."
    )
    if not families:
        return waiting(paper, 0, 2)
    gr, an = families
    epochs = gr.runs[0].epochs[1:]
    leads = [
        compare(*([measured(run, epoch, distance) for run in one.runs] for one in (gr, an)))
        for epoch in epochs
    ]
    counted = sum(v.sign > 0 for v in leads)
    least = min(leads, key=lambda v: v.difference)
    here = f"The difference counts in {counted} of {len(epochs)} epochs, {least.seeds} seeds; "
    here += f"it is at least {interval(least, digits=3)}."
    return Claim(paper, here, parts(v.sign for v in leads))


def histograms(families: Sequence[Family]) -> Claim:
    paper = "GR's confidences of negatives lie around 0.2, those of positives mainly close to 1."
    if not families:
        return waiting(paper, 0, 2)
    gr, an = families
    around, close = share(1, 0.1, 0.3), share(0, 0.9, 1.0)
    negatives, positives, others = (
        [measured(run, one.best(run), statistic) for run in one.runs]
        for one, statistic in ((gr, around), (gr, close), (an, close))
    )
    sides = to(50, negatives), to(50, positives)
    lead = compare(positives, others)
    peaks = [_peak(run, gr.best(run)) for run in gr.runs]
    here = (
        f"Negatives peak at {' to '.join(f'{p:.2f}' for p in sorted({min(peaks), max(peaks)}))}; "
    )
    here += f"{_mean(negatives):.0f}% of them lie between 0.1 and 0.3, {interval(sides[0])} from "
    here += f"half. {_mean(positives):.0f}% of the positives lie above 0.9, {interval(sides[1])} "
    here += f"from half and {interval(lead)} from AN's; {lead.seeds} seeds."
    return Claim(paper, here, parts(v.sign for v in sides))


def _mean(rows: Sequence[Measured]) -> float:
    return float(np.mean([row.figure for row in rows]))


def _peak(run: Unknown, epoch: int) -> float:
    """The middle of the fullest of 50 bins of negatives."""
    counts = np.histogram(run.at(epoch)[~run.positive], 50, (0, 1))[0]
    return float(counts.argmax() + 0.5) / 50


def assumed(families: Sequence[Family]) -> Iterator[Claim]:
    first = "Assumption 1: before training, FN/(FN+TN) is the same at every confidence."
    second = "Assumption 2: after training it rises with confidence, close to k̂ of Eq. (kx)."
    if not families:
        yield from (waiting(first, 0, 2), waiting(second, 0, 2))
        return
    gr = families[0]
    pairs = to(50, [measured(run, 0, higher, ranked=True) for run in gr.runs])
    before = [one.before.constant_p for one in gr.ends]
    apart = sum(p < SURE / len(before) for p in before)
    here = f"{gr.ends[0].before.share:.4f} of all. A positive has the higher confidence in "
    here += f"{50 + pairs.difference:.1f}% of pairs, {interval(pairs)} from half, "
    here += f"{pairs.seeds} seeds. χ² over bins rejects one share in {apart} of {len(before)} runs."
    verdict = PARTLY if apart else YES
    yield Claim(first, here, NO if pairs.sign or apart == len(before) else verdict)
    ranks = {
        one.runs[0].result["method"]: [end.after.rank_correlation or 0.0 for end in one.ends]
        for one in families
    }
    within = [end.after.within for end in gr.ends]
    here = "Rank correlation of confidence and ratio: "
    here += ", ".join(
        f"{min(some):.2f} to {max(some):.2f} for {name.upper()}" for name, some in ranks.items()
    )
    here += f". A bin's 95 % interval holds k̂ in {min(within):.0%} to {max(within):.0%} of GR's "
    here += f"bins; {len(within)} seeds."
    rises, close = min(ranks["gr"]) > 0.8, min(within) > 0.9
    partly = PARTLY if rises else EITHER
    yield Claim(second, here, YES if rises and close else partly)


def tail_over_head(families: Sequence[Family], seeds: Sequence[int]) -> Comparison | None:
    """What the tail third of the classes gains from GR over AN more than the head third."""
    if not families:
        return None
    sides = [
        [_tail(run.run) for run in one.runs if run.run.config["seed"] in seeds] for one in families
    ]
    return compare(*sides) if all(len(side) == len(seeds) for side in sides) else None


def _tail(run: Run) -> Measured:
    logits, truth, observed = run.scores("test"), run.test_truth, run.observed
    assert logits is not None and truth is not None and observed is not None
    counts = (observed.train == 1).sum(axis=0)
    thirds = np.array_split(np.argsort(-counts, kind="stable"), 3)
    ap = np.array(list(run.require_result()["per_class_ap"].values()))
    maps = [resampled_map(logits[:, part], truth[:, part], RESAMPLES) for part in thirds]
    figure = float(ap[thirds[-1]].mean() - ap[thirds[0]].mean())
    return Measured(run.config["observe_seed"], run.config["seed"], figure, maps[-1] - maps[0])
