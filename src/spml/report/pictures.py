"""The pictures of a run's items, where its data can still be read, small enough to stand in the page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spml.errors import DataError, UserError
from spml.report.model import Model
from spml.runs.run import Run

if TYPE_CHECKING:
    from spml.data import Experiment, LabelTable

SIDE = 224  # the longer side of a picture in the page, in pixels
SMALL = 112  # below which a picture is enlarged, its pixels kept apart
QUALITY = 80  # of the JPEG data
CHANGED = "The data have changed since training, so that no picture is sure to be the one that was scored."
FEATURES = "The items are feature vectors: there are no pictures to show."
NOT_ASKED = "Pictures were not asked for."


@dataclass
class Pictures:
    """Items of the run's data by split.

    Attributes:
        why_not: why there are none, in a sentence; empty where there are some.
        tables: by split, "validation" and "test", of the same rows as the stored scores.
        unread: files that could not be read.
    """

    why_not: str = ""
    tables: dict[str, LabelTable] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    def name(self, split: str, row: int) -> str:
        """What the data call an item; its number where they cannot be read."""
        table = self.tables.get(split)
        return f"row {row}" if table is None or table.x is not None else str(table.items[row])

    def reason(self, split: str) -> str:
        """Why there is no picture of a split's items; empty where there may be one."""
        return "" if split in self.tables else self.why_not or CHANGED

    def uri(self, split: str, row: int) -> str:
        """A picture as a data address; empty where there is none."""
        table = self.tables.get(split)
        if table is None:
            return ""
        try:
            return _uri(table, row)
        except (DataError, OSError) as error:
            self.unread.append(" ".join(str(error).split()))
            return ""


def find_pictures(
    run: Run, model: Model, data: Experiment | None = None, root: Path | None = None
) -> Pictures:
    """The items of a run, read again; never an error, since everything else can be shown without.

    Args:
        run: whose items.
        model: of the run.
        data: what it was trained on, where that is at hand.
        root: folder of the data's files; default: where they were at training.
    """
    if model.features:
        return Pictures(FEATURES)
    try:
        if data is None:
            from spml.use.evaluate import run_data

            data = run_data(run.config, list(run.classes), root)
        if data.observed.x is not None and data.observed.x.ndim != 4:
            return Pictures(FEATURES)
        return Pictures(tables=_same_rows(run, data))
    except (UserError, OSError, KeyError, TypeError, ValueError) as error:
        return Pictures(f"The pictures cannot be read again: {' '.join(str(error).split())}")


def _same_rows(run: Run, data: Experiment) -> dict[str, LabelTable]:
    """The tables whose rows are those that were scored, known by the data's hash and, in older runs, their labels."""
    from spml.runs.record import fingerprint, other_data

    tables: dict[str, LabelTable] = {}
    if other_data(run.config, fingerprint(data)):
        return tables
    if run.observed is not None and np.array_equal(data.val_rows, run.observed.val_rows):
        held = data.observed.take(data.val_rows)
        if _alike(held, run.observed.val):
            tables["validation"] = held
    if run.test_truth is not None and data.test is not None and _alike(data.test, run.test_truth):
        tables["test"] = data.test
    return tables


def _alike(table: LabelTable, labels: Any) -> bool:
    return (len(table), len(table.classes)) == labels.shape and np.array_equal(table.labels, labels)


def _uri(table: LabelTable, row: int) -> str:
    from PIL import Image

    from spml.data.images.decode import decode

    pixels = table.x[row] if table.x is not None else decode(table.file(row)).numpy()
    image = Image.fromarray(np.ascontiguousarray(np.moveaxis(np.asarray(pixels, np.uint8), 0, -1)))
    longer = max(image.size)
    whole = -(-SMALL // longer) if longer < SMALL else 0  # times as large
    scale = whole or min(1.0, SIDE / longer)
    width, height = (max(1, round(side * scale)) for side in image.size)
    image = image.resize(
        (width, height), Image.Resampling.NEAREST if whole else Image.Resampling.LANCZOS
    )
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def unread(pictures: Pictures) -> str | None:
    """What is said of pictures that could not be read."""
    if not pictures.unread:
        return None
    more = f", and {len(pictures.unread) - 1} more" if len(pictures.unread) > 1 else ""
    return f"Not every picture could be read: {pictures.unread[0]}{more}."
