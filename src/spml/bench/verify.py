"""Whether recorded figures are those of the stored scores.

Scores are stored as float16. Rounding keeps their order but makes ties, so that the figure is known to lie between two
bounds: every tie broken against the positives, and every tie for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spml.errors import UserError
from spml.report.files import read_arrays, read_record
from spml.train.evaluate import score
from spml.train.settings import Selection

SLACK = 1e-6  # points of mAP: of the arithmetic
Labels = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Check:
    """A figure as recorded, in percent, and what its scores allow.

    Attributes:
        run: the run folder's name.
        split: val or test.
        recorded: the figure.
        bounds: between which it lies by the scores; None where these are not there.
    """

    run: str
    split: str
    recorded: float
    bounds: tuple[float, float] | None

    @property
    def agrees(self) -> bool:
        """Whether the figure is that of the scores."""
        return self.bounds is not None and self.bounds[0] - SLACK <= self.recorded <= self.bounds[1] + SLACK

    def __str__(self) -> str:
        found = "no scores" if self.bounds is None else "scores give {:.2f} to {:.2f}".format(*self.bounds)
        return f"{self.run}  {self.split:<4}  {self.recorded:.2f} recorded, {found}" + (
            "" if self.agrees else "  DIFFERS"
        )


def verify(runs: Path) -> Iterator[Check]:
    """Each figure of the finished runs in a folder of run folders."""
    folders = sorted(path.parent for path in runs.glob("*/result.json"))
    if not folders:
        raise UserError(f"{runs} holds no finished run; give the --out of a bench")
    for folder in folders:
        yield from _checks(folder)


def _checks(folder: Path) -> Iterator[Check]:
    result = read_record(folder / "result.json")
    labels = read_arrays(folder / "labels.npz", ("classes",)) or {}
    files = {"val": f"val-{result['best_epoch']:02d}.npz", "test": "test.npz"}
    for split, file in files.items():
        recorded = result.get(f"{split}_map")
        if recorded is None:
            continue
        scores = read_arrays(folder / "scores" / file, ("logits",))
        truth = labels.get(f"{split}_truth")
        found = None
        if scores is not None and truth is not None:
            found = bounds(scores["logits"], truth, result["selection"] if split == "val" else "complete")
        yield Check(folder.name, split, float(recorded), found)


def bounds(logits: npt.NDArray[np.float16], truth: Labels, selection: Selection) -> tuple[float, float]:
    """The least and the largest figure, in percent, that scores which round to these can have."""
    against, favouring = np.empty(logits.shape, np.float32), np.empty(logits.shape, np.float32)
    for column in range(logits.shape[1]):
        values, positive = logits[:, column], truth[:, column] == 1
        order = np.lexsort((~positive, values))  # rising; positives below what they tie with
        against[order, column] = np.arange(len(values))
        favouring[:, column] = 2 * np.unique(values, return_inverse=True)[1] + positive
    return score(against, truth, selection), score(favouring, truth, selection)
