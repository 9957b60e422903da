"""The worst mistakes of a run's model on its own data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np
import numpy.typing as npt
import torch

from spml.data.images.loader import Item
from spml.data.table import LabelTable
from spml.model import ModelInfo
from spml.use.evaluate import Split


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
    part: Split,
    logits: npt.NDArray[np.float32],
    read: npt.NDArray[np.bool_],
    info: ModelInfo,
    count: int,
) -> list[Mistake]:
    """Return the worst mistakes first: missed positives and wrong tags by turns.

    The worst missed positives have the lowest probability, the worst wrong tags the highest. An
    unknown label is never a mistake, so observed positives alone give only missed ones. Only the
    items that were read are judged.
    """
    table, labels = part.table, part.labels
    known = np.where(read[:, None], labels, np.int8(0))
    calibrated = info.calibrate()(torch.from_numpy(logits))
    probabilities = calibrated.sigmoid().numpy()
    mistakes = []
    for row, column in rank_mistakes(
        calibrated.numpy(), info.tag_rule.tagged(logits), known, count
    ):
        label, probability = int(labels[row, column]), float(probabilities[row, column])
        present, _ = table.known(row)
        mistakes.append(Mistake(_item(table, row), column, label, probability, tuple(present)))
    return mistakes


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
    turns = chain.from_iterable(zip_longest(missed, wrong))
    return [place for place in turns if place is not None]


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
