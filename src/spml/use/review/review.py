"""List the labels most likely missing from a run's data: a table, and a page to answer on."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from spml.data import Experiment, LabelTable
from spml.data.images.loader import OnError
from spml.errors import UserError
from spml.files import contents, replaces_something, replacing_folder
from spml.model import Classifier, ModelInfo, load_model
from spml.runs.run import Run
from spml.use.evaluate import run_data
from spml.use.predict.inputs import Note
from spml.use.predict.tagging import class_column
from spml.use.review.page import Card, draw, render
from spml.use.review.suggest import Suggestion, suggest
from spml.use.stored_model import own_device

Split = Literal["train", "val", "all"]
Advance = Callable[[str, int, int], None]
MIN_PRECISION = 0.5  # of the labels of a calibrated model
TABLE, PAGE, PICTURES = "suggestions.csv", "index.html", "pictures"
COLUMNS = ("rank", "image", "class", "probability", "score", "observed")
MARK = 'content="spml review"'  # marks a folder that this module wrote


@dataclass(frozen=True)
class Reviewed:
    """A run with its data, loaded again.

    Attributes:
        config: the run's settings.
        experiment: its data.
        model: its chosen model.
        info: the model's description.
    """

    config: dict[str, Any]
    experiment: Experiment
    model: Classifier
    info: ModelInfo

    @classmethod
    def load(cls, run: Path, root: Path | None = None, note: Note | None = None) -> Reviewed:
        """Load a finished run; `note` is called with a message if its data have changed."""
        stored = Run(run)
        config = stored.config
        stored.require_result()
        model, info = load_model(run)
        experiment = run_data(config, info.classes, root, note)
        return cls(config, experiment, model.to(own_device()), info)

    def rows(self, split: Split) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Rows of the train list that belong to a split."""
        data = self.experiment
        if split == "all":
            return np.sort(np.concatenate([data.train_rows, data.val_rows]))
        return data.train_rows if split == "train" else data.val_rows


def review(
    run: Path,
    out: Path,
    *,
    count: int = 500,
    classes: Sequence[str] = (),
    per_class: int | None = None,
    min_precision: float | None = None,
    split: Split = "train",
    root: Path | None = None,
    overwrite: bool = False,
    batch_size: int = 64,
    on_error: OnError | None = None,
    note: Note | None = None,
    advance: Advance | None = None,
) -> int:
    """Write suggestions.csv, index.html and pictures; return the number of suggestions.

    Args:
        run: a finished run.
        out: a new folder.
        count: number of labels at most.
        classes: classes to suggest; default: all.
        per_class: labels of one class at most.
        min_precision: least calibrated probability of a label; None is MIN_PRECISION if the model
            is calibrated, else 0.
        split: rows of the train list to look at.
        root: folder of the data's files; default: the folder used in training.
        overwrite: replace a folder that this function wrote.
        batch_size: items per batch.
        on_error: called for each unreadable picture, which is left out; without it, it is raised.
        note: called with a message if the run's data have changed; they are used all the same.
        advance: called with the stage, the amount done and its total.
    """
    for flag, value in (
        ("--count", count),
        ("--per-class", per_class),
        ("--batch-size", batch_size),
    ):
        if value is not None and value < 1:
            raise UserError(f"{flag} must be above 0, not {value}")
    if min_precision is not None and not 0 <= min_precision <= 1:
        raise UserError(f"--min-precision must be from 0 to 1, not {min_precision}")
    _refuse(out, overwrite)
    reviewed = Reviewed.load(run, root, note)
    columns = [class_column(name, reviewed.info, "--classes") for name in classes]
    table = reviewed.experiment.observed.take(reviewed.rows(split))
    if not len(table):
        raise UserError(f"{reviewed.experiment.name} has no rows of split {split}")
    suggestions = suggest(
        table,
        reviewed.model,
        reviewed.info,
        count,
        columns=columns or None,
        per_class=per_class,
        batch_size=batch_size,
        on_error=on_error,
        advance=None if advance is None else lambda done, total: advance("scoring", done, total),
    )
    if not suggestions:
        raise UserError(f"every label of split {split} is known; there is nothing to suggest")
    suggestions = _probable(suggestions, reviewed.info, min_precision, note)
    with replacing_folder(out) as folder:
        _write_table(folder / TABLE, table, suggestions, reviewed.info)
        cards = [_card(rank, one, table, reviewed.info) for rank, one in enumerate(suggestions, 1)]
        cards = draw(cards, table, reviewed.model, reviewed.info, folder / PICTURES, advance)
        page = render(f"Review, {run.resolve().name}", reviewed.model, cards)
        (folder / PAGE).write_text(page, encoding="utf-8", errors="replace")
    return len(suggestions)


def _probable(
    suggestions: list[Suggestion], info: ModelInfo, least: float | None, note: Note | None
) -> list[Suggestion]:
    """Return the suggestions of at least this probability, of a model that is calibrated."""
    if info.calibration is None:
        if least is not None:
            raise UserError(
                "--min-precision compares calibrated probabilities, and the model has none; "
                "run spml calibrate first, or leave it out"
            )
        if note is not None:
            note(
                "the model is not calibrated, so the list has as many labels as --count; "
                "after spml calibrate it ends where labels become improbable"
            )
        return suggestions
    least = MIN_PRECISION if least is None else least
    probable = [one for one in suggestions if one.probability >= least]
    if not probable:
        best = max(one.probability for one in suggestions)
        raise UserError(
            f"no unknown label has a probability of {least:g}; the highest is {best:.2f}: "
            "give a lower --min-precision"
        )
    return probable


def _card(rank: int, one: Suggestion, table: LabelTable, info: ModelInfo) -> Card:
    return Card(
        rank,
        table.items[one.row],
        info.classes[one.column],
        one.probability,
        _known(table, one.row),
        one,
    )


def _known(table: LabelTable, row: int) -> list[str]:
    """Observed labels of an item: names of positives, then of known negatives after "not"."""
    labels = table.rows([row])[0]
    there, absent = (
        [table.classes[i] for i in np.flatnonzero(labels == value).tolist()] for value in (1, -1)
    )
    return there + [f"not {name}" for name in absent[:3]] + (["…"] if len(absent) > 3 else [])


def _write_table(
    path: Path, table: LabelTable, suggestions: Sequence[Suggestion], info: ModelInfo
) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for rank, one in enumerate(suggestions, 1):
            positives = np.flatnonzero(table.rows([one.row])[0] == 1).tolist()
            known = "|".join(info.classes[i] for i in positives)
            name = info.classes[one.column]
            rows.writerow(
                [
                    rank,
                    table.items[one.row],
                    name,
                    f"{one.probability:.6f}",
                    f"{one.score:.4f}",
                    known,
                ]
            )


def _refuse(out: Path, overwrite: bool) -> None:
    """Raise UserError if writing would destroy something."""
    if not replaces_something(out, overwrite):
        return
    others = (
        [p.name for p in contents(out) if p.name not in (TABLE, PAGE, PICTURES)]
        if out.is_dir()
        else [out.name]
    )
    page = out / PAGE
    if (
        others
        or not page.is_file()
        or MARK not in page.read_text(encoding="utf-8", errors="replace")
    ):
        what = f" ({others[0]})" if others else ""
        raise UserError(
            f"{out} holds something else than a review{what}; move it away, or give another --out"
        )
