"""Items of a run with their pictures: examples of predictions, and labels that may be missing."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spml.errors import DataError, UserError
from spml.metrics.scores import HIGHEST
from spml.report.probabilities import Array, Model
from spml.runs.run import Run

if TYPE_CHECKING:
    from spml.data import Experiment, LabelTable

SIDE = 224  # the longer side of a picture in the page, in pixels
SMALL = 112  # a smaller picture is enlarged by a whole factor
QUALITY = 80  # of the JPEG data
CHANGED = "The data have changed since training, so a picture may not be the one that was scored."
FEATURES = "The items are feature vectors: there are no pictures to show."
NOT_ASKED = "Pictures were not requested."

TAGS = 6  # lines below a picture
RIGHT, WRONG, UNKNOWN, MISSED = "right", "wrong", "unknown", "missed"
MARKS = {RIGHT: "✓", WRONG: "✗", UNKNOWN: "?", MISSED: "–"}
SUSPECTS = 12  # labels shown as possibly missing
SUSPECT_SHARE = 0.25  # of the unknown labels at most, so that few items have few suspects
PER_CLASS = 3  # suspects at most, so that one class does not fill the page


@dataclass
class Pictures:
    """The run's items by split, and their pictures as far as they can still be read.

    `why_not` is the reason if there are none, `unread` lists files that could not be read. The
    tables of the splits "validation" and "test" have the rows of the stored scores.
    """

    why_not: str = ""
    tables: dict[str, LabelTable] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    def name(self, split: str, row: int) -> str:
        """Name of an item; its row number if the data cannot be read."""
        table = self.tables.get(split)
        return f"row {row}" if table is None or table.x is not None else str(table.items[row])

    def reason(self, split: str) -> str:
        """Reason why a split has no pictures; empty if it may have some."""
        return "" if split in self.tables else self.why_not or CHANGED

    def uri(self, split: str, row: int) -> str:
        """A picture as a data URI; empty if there is none."""
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
    """Load the items of a run again; never raises, because the page can do without pictures."""
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
    """Tables whose rows match the stored scores: the data's hash and the labels are equal."""
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
    from PIL import Image, ImageOps

    from spml.data.images.decode import decode

    pixels = table.x[row] if table.x is not None else decode(table.file(row)).numpy()
    image = Image.fromarray(np.ascontiguousarray(np.moveaxis(np.asarray(pixels, np.uint8), 0, -1)))
    if (longer := max(image.size)) < SMALL:
        image = ImageOps.scale(image, -(-SMALL // longer), Image.Resampling.NEAREST)
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


class Tag(NamedTuple):
    """A tag of an item, or a label that the model missed; `kind` is a key of MARKS."""

    kind: str
    mark: str
    name: str
    probability: float


def examples(run: Run, model: Model, pictures: Pictures, number: int) -> dict[str, Any] | None:
    """Cards of `number` items; None without usable scores."""
    scored = run.scored
    if scored is None or not scored.usable or number < 1:
        return None
    why_not = pictures.reason(scored.split)
    shown = {"why_not": why_not, "complete": scored.complete, "split": scored.split}
    if why_not:
        return shown
    p, tagged = model.rule.probabilities(scored.logits), model.rule.tagged(scored.logits)
    surprises = surprise(model.rule.logits(scored.logits), scored.truth)
    cards = []
    for kind, row in choose(surprises, scored.truth, number):
        uri = pictures.uri(scored.split, row)
        if not uri:
            continue
        tags = _tags(run.classes, scored.truth[row], p[row], tagged[row])
        cards.append(
            {
                "kind": kind,
                "uri": uri,
                "item": pictures.name(scored.split, row),
                "labels": _positives(run.classes, scored.truth[row]),
                "tags": tags[:TAGS],
                "more": max(0, len(tags) - TAGS),
            }
        )
    return {**shown, "cards": cards}


def _positives(classes: Sequence[str], truth: npt.NDArray[np.int8]) -> list[str]:
    return [classes[c] for c in np.flatnonzero(truth == 1).tolist()]


def surprise(logits: Array, truth: npt.NDArray[np.int8]) -> Array:
    """Mean negative log likelihood of each item's known labels; NaN if none is known."""
    known = truth != 0
    losses = np.logaddexp(0, -truth.astype(np.float64) * logits) * known
    with np.errstate(invalid="ignore"):
        return np.asarray(losses.sum(axis=1) / known.sum(axis=1), np.float64)


def choose(surprises: Array, truth: npt.NDArray[np.int8], number: int) -> list[tuple[str, int]]:
    """Kinds and rows of the least, middle and most surprising items, first of different labels."""
    judged = np.flatnonzero((truth == 1).any(axis=1) & np.isfinite(surprises))
    order = judged[np.argsort(surprises[judged], kind="stable")]
    middle = order[np.argsort(np.abs(np.arange(len(order)) - len(order) // 2), kind="stable")]
    quarter = min(number, len(order)) // 4
    wanted = {
        "worst": (order[::-1], min(number, len(order)) - 2 * quarter),
        "best": (order, quarter),
        "typical": (middle, quarter),
    }
    chosen: dict[str, list[int]] = {}
    for kind, (rows, size) in wanted.items():
        used = [row for others in chosen.values() for row in others]
        free = [row for row in rows.tolist() if row not in used]
        first = set({truth[row].tobytes(): row for row in reversed(free)}.values())
        others = [row for row in free if row not in first]
        chosen[kind] = [*(row for row in free if row in first), *others][:size]
    return [(kind, row) for kind in ("best", "typical", "worst") for row in chosen[kind]]


def _tags(
    classes: Sequence[str],
    truth: npt.NDArray[np.int8],
    p: Array,
    tagged: npt.NDArray[np.bool_],
) -> list[Tag]:
    """Tags, then missed labels, the most probable first."""
    kinds = {1: RIGHT, 0: UNKNOWN, -1: WRONG}
    order = np.argsort(-p, kind="stable").tolist()
    tags = [(kinds[int(truth[c])], c) for c in order if tagged[c]]
    tags += [(MISSED, c) for c in order if truth[c] == 1 and not tagged[c]]
    return [Tag(kind, MARKS[kind], classes[c], float(p[c])) for kind, c in tags]


def suspects(run: Run, model: Model, pictures: Pictures) -> dict[str, Any] | None:
    """The unknown validation labels that are most likely positive, ranked as by `spml review`.

    Only observed labels are read to rank them. If complete labels chose the epoch, they confirm the
    suspects. None without scores of validation rows.
    """
    held = run.held_out
    if held is None or not held.usable:
        return None
    from spml.use.review.ranking import fit_scale, likeliest

    logits = np.clip(held.logits, -HIGHEST, HIGHEST)
    wanted = min(SUSPECTS, int((held.truth == 0).sum() * SUSPECT_SHARE))
    rows, columns = likeliest(
        fit_scale(logits, held.truth), logits, held.truth, wanted, per_class=PER_CLASS
    )
    known = run.val_truth if run.fact("selection") == "complete" else None
    known = known if known is not None and known.shape == logits.shape and known.all() else None
    cards = [
        {
            "uri": pictures.uri("validation", row),
            "item": pictures.name("validation", row),
            "name": run.classes[column],
            "probability": float(model.rule.probabilities(logits[row : row + 1])[0, column]),
            "observed": _positives(run.classes, held.truth[row]),
            "there": None if known is None else bool(known[row, column] == 1),
        }
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    ]
    return {
        "cards": cards,
        "per_class": PER_CLASS,
        "pictured": any(card["uri"] for card in cards),
        "confirmed": None if known is None else sum(card["there"] for card in cards),
        "num_items": len(logits),
        "folder": str(run.folder),
    }
