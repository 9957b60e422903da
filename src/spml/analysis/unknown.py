"""The validation labels that the paper analyses: all but the single positives that were drawn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.metrics.scores import sigmoid
from spml.runs.names import LABELS, OBSERVED
from spml.runs.run import Run

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Unknown:
    """Confidences of the unknown validation labels of a run.

    Attributes:
        run: The run, with its scores.
        mask: The unknown labels among validation rows by classes.
        positive: Which unknown labels are positive in the complete labels.
        seen: Number of validation labels that were drawn, all positive.
    """

    run: Run
    mask: Flags
    positive: Flags
    seen: int

    @property
    def result(self) -> dict[str, Any]:
        """Result of the run."""
        return self.run.require_result()

    @property
    def observed_share(self) -> float:
        """Probability that a positive is observed: 1 / (positives per image).

        The paper's number of positives is used for its data sets; it is counted for others.
        """
        from spml.data.benchmarks import paper_counts

        paper = paper_counts(str(self.run.config.get("data")))
        if paper is not None:
            return 1 / paper.positives
        return self.seen / (self.seen + int(self.positive.sum()))

    @cached_property
    def epochs(self) -> list[int]:
        """Epochs of the run; 0 is before training."""
        return [record["epoch"] for record in self.run.history]

    def at(self, epoch: int) -> Floats:
        """Return the confidences after an epoch."""
        path, logits = self.run.scores_file("val", epoch), self.run.scores("val", epoch)
        if logits is None:
            raise UserError(f"{path} is not there: the run's scores of epoch {epoch} are needed")
        if logits.shape != self.mask.shape:
            raise UserError(
                f"{path}: logits of shape {logits.shape} do not fit the labels {self.mask.shape}"
            )
        confidence = sigmoid(logits[self.mask])
        if not np.isfinite(confidence).all():
            raise UserError(f"{path} holds scores that are not numbers: the run has diverged")
        return confidence


def unknown_labels(folder: Path) -> Unknown:
    """Read the unknown validation labels of a finished run that has complete validation labels."""
    run = Run(folder)
    truth, stored = run.val_truth, run.observed
    if truth is None or stored is None:
        raise UserError(f"{folder} has no {LABELS} and {OBSERVED} with validation labels")
    observed = stored.val
    if observed.shape != truth.shape:
        raise UserError(
            f"{folder}: validation labels {truth.shape} do not fit those observed {observed.shape}"
        )
    mask = observed == 0
    if set(truth[mask].tolist()) != {1, -1}:
        raise UserError(
            f"{folder}: the study needs complete validation labels, with positives that were not "
            "drawn"
        )
    run.require_result()
    return Unknown(run, mask, truth[mask] == 1, int((observed == 1).sum()))
