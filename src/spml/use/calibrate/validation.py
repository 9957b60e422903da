"""Validation items of a finished run: logits of its chosen model, and labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from spml.data import Experiment
from spml.errors import UserError
from spml.files import demand
from spml.metrics.scores import HIGHEST, Labels
from spml.model import ModelInfo, load_model
from spml.model.store import check_weights, read_info
from spml.runs.names import CONFIG, LABELS, OBSERVED
from spml.runs.record import fingerprint, other_data
from spml.runs.run import Run
from spml.use.evaluate import compare_items, not_validated_on, run_data
from spml.use.stored_model import own_device, score_readable

Kind = Literal["observed", "complete"]
NEEDED = ("data", "method", "epochs", "selection")  # in config.json, also for the model card
AGAIN = "it is damaged: move it away, and the data and the model are used instead"


@dataclass(frozen=True, eq=False)
class Validation:
    """The items that a calibration is fitted to."""

    info: ModelInfo  # of the chosen model
    logits: npt.NDArray[np.float64]  # (items, classes)
    labels: Labels
    kind: Kind
    source: str  # where the logits come from, as text
    changed_items: int = 0  # items that differ from those of training


def read_validation(
    run: Path,
    labels: Kind | None = None,
    *,
    root: Path | None = None,
    batch_size: int = 64,
    accept_changed_data: bool = False,
) -> Validation:
    """Scores and labels of a run's validation rows.

    With observed labels no other label is read. By default the labels are those that chose the
    epoch. Scores come from the run's own file, or are computed with the model if that file is
    missing; `root` is then the folder of the data's files, and items that have changed since
    training are a UserError unless that is accepted.
    """
    read = Run(run, remedy=AGAIN)
    config = read.config
    read.require_result()  # a run that resumes would replace this model
    info = read_info(run)
    check_weights(run)  # before anything is written that describes them
    demand(config, NEEDED, run / CONFIG)
    kind: Kind = labels or ("complete" if config.get("selection") == "complete" else "observed")
    classes = len(info.classes)
    if read.observed is None:  # the data were too large for the file
        experiment = _data(read, info, root, OBSERVED)
        rows, observed = experiment.val_rows, experiment.observed.rows(experiment.val_rows)
    else:
        rows, observed = read.observed.val_rows, read.observed.val
        if observed.shape[1] != classes:
            raise UserError(
                f"{run / OBSERVED} has labels of {observed.shape[1]} classes, the model {classes}"
            )
    if not len(rows):
        raise UserError(
            f"{run} has no validation items, and scores of training items are no guide; "
            "train again with rows for validation"
        )
    epoch = int(info.training.get("epoch") or 0)
    changed = 0
    file, scores = read.scores_file("val", epoch), read.scores("val", epoch)
    if scores is None:
        experiment = _data(read, info, root, "scores of its validation items")
        table = experiment.observed.take(rows)
        changed = compare_items(read, experiment, "val", table, accept_changed_data)
        model = load_model(run)[0].to(own_device())
        logits = score_readable(table, model, info, batch_size)[0].astype(np.float64)
        source = "computed with the model"
    else:
        logits = scores.astype(np.float64)
        source = f"{file.relative_to(run)} ({scores.dtype})"
    if logits.shape != (len(rows), classes):
        raise UserError(f"{file}: {logits.shape} do not fit {len(rows)} items of {classes} classes")
    known = observed.astype(np.int8)
    if kind == "complete":
        known = _complete(read, info, rows, root, observed)
    return Validation(info, np.clip(logits, -HIGHEST, HIGHEST), known, kind, source, changed)


def _complete(run: Run, info: ModelInfo, rows: Any, root: Path | None, observed: Labels) -> Labels:
    stored = run.val_truth if run.config.get("selection") == "complete" else None
    if stored is not None:
        if list(run.classes) != info.classes:
            raise UserError(
                f"{run.folder / LABELS} has other classes than the model; the folder mixes two runs"
            )
        truth = stored.astype(np.int8)
    else:
        experiment = _data(run, info, root, "complete labels", same=False)
        table = experiment.observed if experiment.complete is None else experiment.complete
        truth = table.rows(experiment.val_rows)
        known = observed != 0  # more may be known by now
        if not np.array_equal(experiment.val_rows, rows) or (truth != observed)[known].any():
            raise not_validated_on(experiment)
    if truth.shape != (len(rows), len(info.classes)) or not truth.all():
        raise UserError(
            "these validation items have labels that are not known; give --labels observed"
        )
    return truth


def _data(
    run: Run, info: ModelInfo, root: Path | None, lacking: str, *, same: bool = True
) -> Experiment:
    """The run's data, in place of the file it lacks; `same` raises if the data have changed."""
    try:
        experiment = run_data(run.config, info.classes, root)
        if same and other_data(run.config, fingerprint(experiment)):
            raise not_validated_on(experiment)
        return experiment
    except (UserError, OSError) as error:
        raise UserError(
            f"{run.folder} has no {lacking}, and its data cannot be loaded: {error}"
        ) from error
