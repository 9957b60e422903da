"""Statistics of a data set: the paper's table, the constant of its Remark 1, counts and co-occurrence of classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spml.data.experiment import Experiment
from spml.data.observation import lookup
from spml.data.table import SparseLabels

Counts = npt.NDArray[np.int64]
MOST_CLASSES = 2000  # with which pairs of classes are counted: the counts take 8 bytes a pair
FEWEST = 5  # items that a pair needs before its lift is listed


class Pair(NamedTuple):
    """Two classes, the items that have both, and how many times as many as if they were independent."""

    first: str
    second: str
    items: int
    lift: float


@dataclass(frozen=True, eq=False)
class Statistics:
    """What is known of a data set's labels; all but `images` is of its training rows.

    Attributes:
        name: the data set's name or path.
        version: which version of it, where several circulate.
        classes: one name per column.
        images: how many there are in train, val and test.
        seen: known positives of each class, #{s = 1}.
        negatives: known negatives of each class.
        missing: positives of each class that training does not see, #{y = 1, s = 0}; None where y is not known.
        unknown: labels that training does not see, #{s = 0}.
        together: items that have both classes of a pair; None where there are too many classes, or where y is not known
            and no item has two known positives.
        observation: the model that gave the observed labels.
    """

    name: str
    version: str
    classes: Sequence[str]
    images: Mapping[str, int]
    seen: Counts
    negatives: Counts
    missing: Counts | None
    unknown: int
    together: Counts | None = field(repr=False)
    observation: Mapping[str, Any]

    @property
    def complete(self) -> bool:
        """Whether the true labels are known."""
        return self.missing is not None

    @property
    def total(self) -> Counts:
        """Positives of each class, as far as they are known."""
        return self.seen if self.missing is None else self.seen + self.missing

    @property
    def positives(self) -> float:
        """Positives of a training image, as far as they are known."""
        return float(self.total.sum() / self.images["train"])

    @property
    def constant(self) -> float | None:
        """#{y = 1, s = 0} / #{s = 0}: what k_hat is at the start of training, by Remark 1."""
        return (
            None
            if self.missing is None or not self.unknown
            else float(self.missing.sum() / self.unknown)
        )

    @property
    def logit(self) -> float | None:
        """The b(0) at which the logistic k_hat of Assumption 1, with w(0) = 0, has that value."""
        share = self.constant
        return None if share is None or not 0 < share < 1 else math.log(share / (1 - share))

    def pairs(self, most: int = 10) -> dict[str, list[Pair]]:
        """The pairs of classes that occur together most often ("count"), and most often for their sizes ("lift")."""
        if self.together is None:
            return {}
        first, second = np.triu_indices(len(self.classes), 1)
        count = self.together[first, second]
        there = count > 0
        first, second, count = first[there], second[there], count[there]
        own = self.together.diagonal()
        lift = count * self.images["train"] / (own[first] * own[second])
        listed = {"count": np.lexsort((-lift, -count)), "lift": np.lexsort((-count, -lift))}
        listed["lift"] = listed["lift"][count[listed["lift"]] >= FEWEST]
        return {
            name: [
                Pair(self.classes[first[i]], self.classes[second[i]], int(count[i]), float(lift[i]))
                for i in order[:most]
            ]
            for name, order in listed.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Everything but the counts of all pairs, as JSON holds it; what is not known is null."""
        training = self.images["train"]
        known_negatives = int(self.negatives.sum())
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
            "known_negatives_per_image": known_negatives / training,
            "unknown_labels": self.unknown,
            "missing_positives": None if self.missing is None else int(self.missing.sum()),
            "constant": self.constant,
            "logit": self.logit,
            "classes": [
                {
                    "name": name,
                    "seen": seen,
                    "missing": gone,
                    "total": None if gone is None else seen + gone,
                    "negatives": no,
                }
                for name, seen, gone, no in per_class
            ],
            "pairs": {
                name: [pair._asdict() for pair in listed] for name, listed in self.pairs().items()
            },
        }


def statistics(experiment: Experiment) -> Statistics:
    """Count the labels of an experiment, from their sparse entries alone."""
    observed = experiment.observed.sparse.take(experiment.train_rows)
    complete = (
        None
        if experiment.complete is None
        else experiment.complete.sparse.take(experiment.train_rows)
    )
    images = {"train": len(experiment.train_rows), "val": len(experiment.val_rows)}
    return Statistics(
        name=experiment.name,
        version=experiment.version,
        classes=experiment.classes,
        images=images | {"test": 0 if experiment.test is None else len(experiment.test)},
        seen=observed.counts(1),
        negatives=observed.counts(-1),
        missing=None if complete is None else _missing(observed, complete),
        unknown=int(observed.counts(0).sum()),
        together=_together(observed if complete is None else complete, known=complete is not None),
        observation=experiment.observation,
    )


def _missing(observed: SparseLabels, complete: SparseLabels) -> Counts:
    """Positives of each class that are not observed."""
    known = complete.positives(-1)
    hidden = lookup(observed, known.entry_rows(), known.indices) == 0
    return np.bincount(known.indices[hidden], minlength=known.num_classes)


def _together(labels: SparseLabels, *, known: bool) -> Counts | None:
    """How many items have both classes, for every pair; on the diagonal, how many have the class."""
    ones = labels.positives(0)
    if labels.num_classes > MOST_CLASSES or (not known and np.diff(ones.indptr).max(initial=0) < 2):
        return None
    from scipy.sparse import csr_array

    values = np.ones(len(ones.indices), np.int64)
    table = csr_array((values, ones.indices, ones.indptr), shape=ones.shape)
    return np.asarray((table.T @ table).toarray(), np.int64)
