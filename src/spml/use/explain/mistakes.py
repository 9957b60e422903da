"""The worst mistakes of a run's model on its own data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from spml.data.images.loader import Item
from spml.data.readers.builder import OnError
from spml.data.table import LabelTable
from spml.model import Classifier, ModelInfo
from spml.runs.run import Run
from spml.use.evaluate import run_data, run_split
from spml.use.predict.inputs import Note
from spml.use.stored_model import score_readable


@dataclass(frozen=True)
class Mistake:
    """A wrong tag of an item, or a label that the model missed.

    Attributes:
        item: the picture.
        column: column of the class.
        label: the right label: 1 or -1.
        probability: the model's probability.
        labels: names of the item's known positives.
    """

    item: Item
    column: int
    label: int
    probability: float
    labels: tuple[str, ...]

    def text(self, info: ModelInfo) -> str:
        """The mistake as one line."""
        name = info.classes[self.column]
        if self.label == 1:
            return f"missed: {name}, {self.probability:.3f} (labels: {', '.join(self.labels)})"
        return f"wrong: {name}, {self.probability:.3f} (labels: {', '.join(self.labels) or 'none'})"


def worst_mistakes(
    run: Path,
    model: Classifier,
    info: ModelInfo,
    count: int,
    split: str,
    root: Path | None = None,
    batch_size: int = 64,
    on_error: OnError | None = None,
    note: Note | None = None,
    advance: Callable[[int], None] | None = None,
) -> list[Mistake]:
    """Return the worst mistakes first: missed positives and wrong tags by turns.

    The worst missed positives have the lowest probability, the worst wrong tags the highest. An
    unknown label is never a mistake, so observed positives alone give only missed ones. `on_error`
    is called for each picture that cannot be read, which is then left out; without it the first
    error is raised. `note` is called if the run's data have changed.
    """
    config = Run(run).config
    part = run_split(
        run_data(config, info.classes, root, note), split, str(config.get("selection"))
    )
    table, labels = part.table, part.labels
    logits, read = score_readable(
        table,
        model,
        info,
        batch_size,
        None if on_error is None else lambda row, error: on_error(error),
        None if advance is None else lambda done, total: advance(done),
    )
    known = np.where(read[:, None], labels, np.int8(0))  # only read pictures are judged
    calibrated = info.calibrate()(torch.from_numpy(logits))
    probabilities = calibrated.sigmoid().numpy()
    places = rank_mistakes(calibrated.numpy(), info.tag_rule.tagged(logits), known, count)
    return [
        Mistake(
            _item(table, row),
            column,
            int(labels[row, column]),
            float(probabilities[row, column]),
            tuple(info.classes[i] for i in np.flatnonzero(labels[row] == 1)),
        )
        for row, column in places
    ]


def rank_mistakes(
    logits: npt.NDArray[np.float32],
    tagged: npt.NDArray[np.bool_],
    labels: npt.NDArray[np.int8],
    count: int,
) -> list[tuple[int, int]]:
    """Row and class of up to `count` mistakes, half wrong tags and half missed if possible."""
    wrong = _largest(logits, tagged & (labels == -1), count)
    missed = _largest(-logits, ~tagged & (labels == 1), count)
    wrong = wrong[: max(count // 2, count - len(missed))]
    missed = missed[: count - len(wrong)]
    turns = [
        (place, i, kind)
        for kind, mistakes in enumerate((missed, wrong))
        for i, place in enumerate(mistakes)
    ]
    return [place for place, _, _ in sorted(turns, key=lambda turn: turn[1:])]


def _largest(
    values: npt.NDArray[np.float32], where: npt.NDArray[np.bool_], count: int
) -> list[tuple[int, int]]:
    rows, columns = np.nonzero(where)
    order = np.argsort(-values[rows, columns], kind="stable")[:count]
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


def _item(table: LabelTable, row: int) -> Item:
    if table.x is not None:
        return Item(f"{table.items[row]}", x=table.x[row])
    path = table.file(row)
    return Item(str(path), path, where=table.where(row))
