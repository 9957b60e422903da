"""Where a run's model is most wrong on its own data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from spml.data.readers.builder import OnError
from spml.data.table import LabelTable
from spml.model import Classifier, ModelInfo
from spml.runs.run import Run
from spml.use.evaluate import run_data, run_split
from spml.use.predict.inputs import Item, Note
from spml.use.stored_model import feed_for, none_read


@dataclass(frozen=True)
class Mistake:
    """A class that an item was given and has not, or has and was not given.

    Attributes:
        item: the picture.
        column: of the class.
        label: what it should be: 1 or -1.
        probability: what the model says.
        labels: names of the classes that are known to be there.
    """

    item: Item
    column: int
    label: int
    probability: float
    labels: tuple[str, ...]

    def text(self, info: ModelInfo) -> str:
        """What is wrong, in a line."""
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
    """The worst first: known negatives of the highest probability and positives of the lowest, by turns.

    A label that is not known is no mistake; with observed positives alone there are only missed ones. A picture that
    cannot be read is told of and left out; without `on_error`, the first is raised. `note` is told where the data are
    no longer those of the run.
    """
    config = Run(run).config
    table, labels, _ = run_split(
        run_data(config, info.classes, root, note), split, str(config.get("selection"))
    )
    feed = feed_for(table, info)
    device, calibrate = next(model.parameters()).device, info.calibrate()
    calibrated = torch.zeros(labels.shape)
    known, read = np.zeros_like(labels), 0
    for x, rows in feed.in_order(
        batch_size, None if on_error is None else lambda row, error: on_error(error)
    ):
        with torch.inference_mode():
            calibrated[rows] = calibrate(model(x.to(device)).float().cpu())
        known[rows] = labels[rows]  # of the pictures that could be read
        read += len(rows)
        if advance is not None:
            advance(len(rows))
    if not read:
        raise none_read(len(table))
    probabilities = calibrated.sigmoid().numpy()
    tagged = probabilities >= np.asarray(info.thresholds, np.float32)
    found = rank_mistakes(calibrated.numpy(), tagged, known, count)
    return [
        Mistake(
            _item(table, row),
            column,
            int(labels[row, column]),
            float(probabilities[row, column]),
            tuple(info.classes[i] for i in np.flatnonzero(labels[row] == 1)),
        )
        for row, column in found
    ]


def rank_mistakes(
    logits: npt.NDArray[np.float32],
    tagged: npt.NDArray[np.bool_],
    labels: npt.NDArray[np.int8],
    count: int,
) -> list[tuple[int, int]]:
    """Row and class of up to `count` mistakes: half wrong tags and half missed ones, if there are enough of both."""
    wrong = _largest(logits, tagged & (labels == -1), count)
    missed = _largest(-logits, ~tagged & (labels == 1), count)
    wrong = wrong[: max(count // 2, count - len(missed))]
    missed = missed[: count - len(wrong)]
    turns = [
        (place, i, kind)
        for kind, found in enumerate((missed, wrong))
        for i, place in enumerate(found)
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
