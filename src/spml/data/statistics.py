"""Statistics of a data set: the paper's table, its Remark 1, class counts and co-occurrence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spml.data.experiment import Experiment
from spml.data.table import SparseLabels

Counts = npt.NDArray[np.int64]
MAX_CLASSES = 2000  # for counting pairs of classes: the counts take 8 bytes a pair
MIN_ITEMS = 5  # items that a pair needs for its lift to be listed


class Pair(NamedTuple):
    """Two classes, the number of items with both, and its ratio to that of independent classes."""

    first: str
    second: str
    items: int
    lift: float


@dataclass(frozen=True, eq=False)
class Statistics:
    """Counts of a data set's labels; all but `images` count its training rows.

    Attributes:
        images: number in train, val and test.
        seen: known positives of each class, #{s = 1}.
        negatives: known negatives of each class.
        missing: positives of each class that training does not see, #{y = 1, s = 0}; None if y is
            unknown.
        unknown: labels that training does not see, #{s = 0}.
        cooccurrence: number of items with both classes of a pair; None if there are too many
            classes, or if y is unknown and no item has two known positives.
    """

    name: str
    version: str
    classes: Sequence[str]
    images: Mapping[str, int]
    seen: Counts
    negatives: Counts
    missing: Counts | None
    unknown: int
    cooccurrence: Counts | None = field(repr=False)
    observation: Mapping[str, str | float]

    @property
    def complete(self) -> bool:
        """Whether the true labels are known."""
        return self.missing is not None

    @property
    def total(self) -> Counts:
        """Known positives of each class."""
        return self.seen if self.missing is None else self.seen + self.missing

    @property
    def positives(self) -> float:
        """Mean known positives of a training image."""
        return float(self.total.sum() / self.images["train"])

    @property
    def constant(self) -> float | None:
        """#{y = 1, s = 0} / #{s = 0}: the value of k_hat at the start of training, by Remark 1."""
        if self.missing is None or not self.unknown:
            return None
        return float(self.missing.sum() / self.unknown)

    @property
    def logit(self) -> float | None:
        """The b(0) that gives the logistic k_hat of Assumption 1 this value, with w(0) = 0."""
        share = self.constant
        return None if share is None or not 0 < share < 1 else math.log(share / (1 - share))

    def pairs(self, most: int = 10) -> dict[str, list[Pair]]:
        """Return the pairs that co-occur most often ("count"), and relative to chance ("lift")."""
        if self.cooccurrence is None:
            return {}
        first, second = np.triu_indices(len(self.classes), 1)
        count = self.cooccurrence[first, second]
        occurring = count > 0
        first, second, count = first[occurring], second[occurring], count[occurring]
        own = self.cooccurrence.diagonal()
        lift = count * self.images["train"] / (own[first] * own[second])
        listed = {"count": np.lexsort((-lift, -count)), "lift": np.lexsort((-count, -lift))}
        listed["lift"] = listed["lift"][count[listed["lift"]] >= MIN_ITEMS]
        return {
            name: [
                Pair(self.classes[first[i]], self.classes[second[i]], int(count[i]), float(lift[i]))
                for i in order[:most]
            ]
            for name, order in listed.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything but the counts of all pairs, for JSON; unknown values are null."""
        training = self.images["train"]
        missing = [None] * len(self.classes) if self.missing is None else self.missing.tolist()
        per_class = zip(
            self.classes, self.seen.tolist(), missing, self.negatives.tolist(), strict=True
        )
        return {
            "data": self.name,
            "version": self.version,
            "observation": dict(self.observation),
            "num_classes": len(self.classes),
            "images": dict(self.images),
            "positives_per_image": self.positives if self.complete else None,
            "negatives_per_image": len(self.classes) - self.positives if self.complete else None,
            "known_positives_per_image": float(self.seen.sum() / training),
            "known_negatives_per_image": float(self.negatives.sum() / training),
            "unknown_labels": self.unknown,
            "missing_positives": None if self.missing is None else int(self.missing.sum()),
            "constant": self.constant,
            "logit": self.logit,
            "classes": [
                {
                    "name": name,
                    "seen": seen,
                    "missing": hidden,
                    "total": None if hidden is None else seen + hidden,
                    "negatives": negatives,
                }
                for name, seen, hidden, negatives in per_class
            ],
            "pairs": {
                name: [pair._asdict() for pair in listed] for name, listed in self.pairs().items()
            },
        }


def statistics(experiment: Experiment) -> Statistics:
    """Count the labels of an experiment, without a dense table."""
    observed = experiment.observed.sparse.take(experiment.train_rows)
    complete = missing = None
    if experiment.complete is not None:
        complete = experiment.complete.sparse.take(experiment.train_rows)
        known = complete.positives(-1)
        hidden = observed.lookup(known.entry_rows(), known.indices) == 0
        missing = np.bincount(known.indices[hidden], minlength=known.num_classes)
    images = {"train": len(experiment.train_rows), "val": len(experiment.val_rows)}
    return Statistics(
        name=experiment.name,
        version=experiment.version,
        classes=experiment.classes,
        images=images | {"test": 0 if experiment.test is None else len(experiment.test)},
        seen=observed.counts(1),
        negatives=observed.counts(-1),
        missing=missing,
        unknown=int(observed.counts(0).sum()),
        cooccurrence=_cooccurrence(
            observed if complete is None else complete, known=complete is not None
        ),
        observation=experiment.observation,
    )


def _cooccurrence(labels: SparseLabels, *, known: bool) -> Counts | None:
    """Count the items with both classes of every pair; the diagonal counts single classes."""
    ones = labels.positives(0)
    if labels.num_classes > MAX_CLASSES or (not known and np.diff(ones.indptr).max(initial=0) < 2):
        return None
    from scipy.sparse import csr_array

    values = np.ones(len(ones.indices), np.int64)
    table = csr_array((values, ones.indices, ones.indptr), shape=ones.shape)
    return np.asarray((table.T @ table).toarray(), np.int64)
