"""The validation entries that the paper looks at: those not drawn as their rows' single positives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.scores import sigmoid
from spml.runs.files import read_arrays, read_history, read_json

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Unknown:
    """Confidences of a run's unknown validation labels.

    Attributes:
        folder: the run folder, with its scores.
        mask: of the entries, among validation rows and classes.
        positive: which of those entries are positive in truth.
        seen: validation entries that were drawn, all of them positive.
        config: of the run.
        result: of the run.
    """

    folder: Path
    mask: Flags
    positive: Flags
    seen: int
    config: dict[str, Any]
    result: dict[str, Any]

    @property
    def observed_share(self) -> float:
        """Probability that a positive is observed, 1 / (positives of an image): the paper's figure, or else counted."""
        from spml.data.benchmarks import paper_counts

        paper = paper_counts(str(self.config.get("data")))
        if paper is not None:
            return 1 / paper.positives
        return self.seen / (self.seen + int(self.positive.sum()))

    @cached_property
    def epochs(self) -> list[int]:
        """That the run trained; 0 is before training."""
        return [record["epoch"] for record in read_history(self.folder / "history.jsonl")]

    def at(self, epoch: int) -> Floats:
        """The confidences after an epoch."""
        path = self.folder / "scores" / f"val-{epoch:02d}.npz"
        arrays = read_arrays(path, ("logits",))
        if arrays is None:
            raise UserError(f"{path} is not there: the run's scores of epoch {epoch} are needed")
        logits = arrays["logits"]
        if logits.shape != self.mask.shape:
            raise UserError(
                f"{path}: logits of shape {logits.shape} do not fit the labels {self.mask.shape}"
            )
        confidence = sigmoid(logits[self.mask])
        if not np.isfinite(confidence).all():
            raise UserError(f"{path} holds scores that are not numbers: the run has diverged")
        return confidence


def unknown_labels(folder: Path) -> Unknown:
    """The unknown validation labels of a run folder; UserError where their truth or scores are not there."""
    labels = read_arrays(folder / "labels.npz", ("classes",)) or {}
    stored = read_arrays(folder / "observed.npz", ("observed", "val_rows"))
    truth = labels.get("val_truth")
    if truth is None or stored is None:
        raise UserError(f"{folder} has no labels.npz and observed.npz with validation labels")
    observed = stored["observed"][stored["val_rows"]]
    if observed.shape != truth.shape:
        raise UserError(
            f"{folder}: validation labels {truth.shape} do not fit those observed {observed.shape}"
        )
    mask = observed == 0
    if set(truth[mask].tolist()) != {1, -1}:
        raise UserError(
            f"{folder}: the study needs complete validation labels, with positives that were not drawn"
        )
    config, result = read_json(folder / "config.json"), read_json(folder / "result.json")
    return Unknown(folder, mask, truth[mask] == 1, int((observed == 1).sum()), config, result)
