"""List the labels most likely missing from a run's data: a table, and a page to answer on."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from spml.data import Experiment, LabelTable
from spml.data.experiment import Rows
from spml.data.readers.builder import OnError
from spml.errors import UserError
from spml.files import replacing_folder
from spml.model import ModelInfo, load_model
from spml.runs.run import Run
from spml.use.evaluate import run_data
from spml.use.pages import PAGE, refuse_others
from spml.use.predict.inputs import Note
from spml.use.predict.tagging import class_column
from spml.use.review.page import draw, render
from spml.use.review.ranking import Suggestion, suggest
from spml.use.stored_model import own_device

Split = Literal["train", "val", "all"]
Advance = Callable[[str, int, int], None]
MIN_PRECISION = 0.5  # of the labels of a calibrated model
TABLE, PICTURES = "suggestions.csv", "pictures"
COLUMNS = ("rank", "image", "class", "probability", "score", "observed")


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
    refuse_others(out, overwrite, "review", lambda name: name in (TABLE, PICTURES))
    stored = Run(run)
    config = stored.config
    stored.require_result()
    model, info = load_model(run)
    model.to(own_device())
    experiment = run_data(config, info.classes, root, note)
    columns = [class_column(name, info, "--classes") for name in classes]
    table = experiment.observed.take(_rows(experiment, split))
    if not len(table):
        raise UserError(f"{experiment.name} has no rows of split {split}")
    suggestions = suggest(
        table,
        model,
        info,
        count,
        columns=columns or None,
        per_class=per_class,
        batch_size=batch_size,
        on_error=on_error,
        advance=None if advance is None else lambda done, total: advance("scoring", done, total),
    )
    if not suggestions:
        raise UserError(f"every label of split {split} is known; there is nothing to suggest")
    suggestions = _probable(suggestions, info, min_precision, note)
    with replacing_folder(out) as folder:
        _write_table(folder / TABLE, table, suggestions)
        drawn = draw(suggestions, table, model, info, folder / PICTURES, advance)
        page = render(f"Review, {run.resolve().name}", model, table, suggestions, drawn)
        (folder / PAGE).write_text(page, encoding="utf-8", errors="replace")
    return len(suggestions)


def _rows(experiment: Experiment, split: Split) -> Rows:
    """Rows of the train list that belong to a split."""
    if split == "all":
        return np.sort(np.concatenate([experiment.train_rows, experiment.val_rows]))
    return experiment.train_rows if split == "train" else experiment.val_rows


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


def _write_table(path: Path, table: LabelTable, suggestions: Sequence[Suggestion]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for rank, one in enumerate(suggestions, 1):
            known, _ = table.known(one.row)
            name, image = table.classes[one.column], table.items[one.row]
            numbers = f"{one.probability:.6f}", f"{one.score:.4f}"
            rows.writerow([rank, image, name, *numbers, "|".join(known)])
