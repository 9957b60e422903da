"""Evaluate a finished run on one of its splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from spml import metrics
from spml.data import Experiment, LabelTable, load
from spml.data.names import INLINE, ClassList
from spml.data.readers.columns import Columns
from spml.data.readers.read import is_named
from spml.errors import DAMAGED, DataError, UserError
from spml.files import demand, write_json
from spml.metrics.scores import Labels
from spml.metrics.thresholds import tag_metrics
from spml.model import ModelInfo, load_model
from spml.runs.contents import changed_items
from spml.runs.names import CONFIG
from spml.runs.record import TEST, TRAIN, fingerprint, known_share, other_data, rankable
from spml.runs.run import Run
from spml.use.stored_model import own_device, score_readable

Logits = npt.NDArray[np.float32]
CHANGED = "other rows or labels than the run was trained with"
ARRAYS, PICTURES = "arrays", "pictures"  # the estimator's names for data that no file holds
FEWEST_ITEMS = 20  # items with a positive that a fit or an estimate needs
MOST_ESTIMATED = 20_000_000  # entries; larger tables get no estimates


def assess(
    run: Path,
    split: Literal["val", "test"] | None = None,
    *,
    root: Path | None = None,
    batch_size: int = 64,
    accept_changed_data: bool = False,
    advance: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Compute metrics of the chosen model on a split, in percent, and write eval-<split>.json.

    Validation uses the labels that chose the epoch: a run trained on single positives is not
    measured on others. Without `split` it is test if the data have it, else val. Items whose
    content has changed are a UserError unless that is accepted. `advance` is called with the number
    of items done and their total.
    """
    if batch_size < 1:
        raise UserError(f"--batch-size must be above 0, not {batch_size}")
    stored = Run(run)
    config = stored.config
    stored.require_result()  # a run that resumes would replace this model
    model, info = load_model(run)
    experiment = run_data(config, info.classes, root)
    if split is None:
        split = "val" if experiment.test is None else "test"
    changed = other_data(config, fingerprint(experiment))
    if changed and split == "val":
        raise not_validated_on(experiment)
    part = run_split(experiment, split, str(config["selection"]))
    labels, kind = part.labels, part.kind
    changed_content = compare_items(stored, experiment, split, part.table, accept_changed_data)
    model.to(own_device())
    logits, _ = score_readable(part.table, model, info, batch_size, None, advance)
    result: dict[str, Any] = {
        "split": split,
        "labels": kind,
        "known": known_share(labels),
        "items": len(part.table),
        "data_changed": changed or bool(changed_content),
        "changed_items": changed_content,
        "metrics": split_metrics(logits, labels, kind, info),
    }
    if kind == "observed" and (why := _not_estimated(labels)):
        result["not_estimated"] = why
    elif kind == "observed":
        result["estimates"] = _estimates(logits, labels, info)
    if kind == "complete":
        aps = 100 * metrics.average_precision(logits, labels)
        result["per_class_ap"] = dict(zip(info.classes, aps.tolist(), strict=True))
    write_json(Run(run).evaluation(split), result)
    return result


def compare_items(
    run: Run,
    experiment: Experiment,
    split: str,
    table: LabelTable,
    accepted: bool,
    note: Callable[[str], None] | None = None,
) -> int:
    """Return how many items of a split differ from those that the run was trained on.

    Raises UserError if there are any and that is not `accepted`; else `note` receives a line.
    """
    stored = run.contents.get(TEST if split == TEST else TRAIN)
    return changed_items([(stored, table)], experiment.name, accepted=accepted, note=note)


def run_data(
    config: dict[str, Any],
    classes: list[str],
    root: Path | None,
    note: Callable[[str], None] | None = None,
) -> Experiment:
    """Load the data that a run was trained on; `note` receives a message if they have changed."""
    needed = ("data", "labels", "selection", "observe_seed", "split_seed")
    demand(config, needed, f"{CONFIG} of the run")
    if config["labels"] not in ("observed", "complete"):
        raise UserError(
            f"{CONFIG} of the run says labels = {config['labels']!r}, which no run has; {DAMAGED}"
        )
    data = str(config["data"])
    # commands always store a root
    if data in (ARRAYS, PICTURES) and "root" not in config and not Path(data).exists():
        raise UserError(
            f"the run was trained on {data} that were given in Python, and keeps no copy of them; "
            "to look at its data again, write them to a file that spml train reads (docs/data.md) "
            "and train on that"
        )
    if not is_named(data) and not Path(data).exists():
        raise UserError(
            f"{data}: no such file here; "
            "give the command in the folder where the run was trained on it"
        )
    written = config.get("classes") or {name: name for name in classes}
    try:
        experiment = load(
            data,
            root or config.get("root"),
            config["labels"],
            config["observe_seed"],
            config["split_seed"],
            classes=None if is_named(data) else ClassList(written, INLINE),
            observe=config.get("observe", "uniform"),
            val=config.get("val"),
            test=config.get("test"),
            columns=Columns(**config.get("columns", {})),
        )
    except DataError as error:
        if is_named(data):
            raise
        since = "the data have changed since the run was trained; put them back, or train again"
        raise DataError(f"{error} ({since})") from error
    if list(experiment.classes) != classes:
        raise UserError(_other_classes(data, list(experiment.classes), classes))
    if note is not None and other_data(config, fingerprint(experiment)):
        note(f"{data} has {CHANGED}")
    return experiment


def _other_classes(data: str, there: list[str], classes: list[str]) -> str:
    """Return a message on how the data's classes differ from the model's, and the remedy."""
    if sorted(there) == sorted(classes):
        how = "the model's classes in another order"
    else:
        extra = [name for name in there if name not in classes]
        hint = f", such as {extra[0]!r}, which the model does not have" if extra else ""
        how = f"{len(there)} classes, the model {len(classes)}{hint}"
    return f"{data} has {how}; put back model.json, or the data that the run was trained on"


def not_validated_on(experiment: Experiment) -> UserError:
    """The error for data that have changed since a run was validated on them."""
    return UserError(
        f"{experiment.name} has {CHANGED}, so its validation rows may be rows "
        "that the model learned from; put the file back as it was, or train again"
    )


class Split(NamedTuple):
    """The items of a split, their labels (items, classes), and whether these are complete."""

    table: LabelTable
    labels: Labels
    kind: str


def run_split(experiment: Experiment, split: str, selection: str) -> Split:
    """The validation or test split of a run's data."""
    if split == "test":
        if experiment.test is None:
            raise UserError(f"{experiment.name} has no test split; give --split val")
        labels = experiment.test.labels
        return Split(experiment.test, labels, "complete" if rankable(labels) else "observed")
    if not len(experiment.val_rows):
        raise UserError(f"{experiment.name} has no rows of split val")
    table = experiment.observed.take(experiment.val_rows)
    return Split(table, experiment.validation_labels(selection), selection)


def _not_estimated(labels: Labels) -> str | None:
    """Why observed labels give no estimates of mAP, precision and recall; None if they do."""
    if labels.shape[1] == 1:
        return "with one class there is nothing to draw from"
    if labels.size > MOST_ESTIMATED:
        return f"{labels.size:,} labels are more than {MOST_ESTIMATED:,}"
    counted = int((labels == 1).any(axis=1).sum())
    few = f"{counted} items have a positive, and a range needs {FEWEST_ITEMS} at least"
    return few if counted < FEWEST_ITEMS else None  # resamples of fewer items are all alike


def _estimates(logits: Logits, observed: Labels, info: ModelInfo) -> dict[str, dict[str, float]]:
    """Estimate mAP, precision, recall and F1 in percent, with intervals, from observed labels."""
    from spml.use.calibrate.estimates import estimate

    estimates = {}
    for name, figures in estimate(logits, observed, info.tag_rule.tagged(logits)).items():
        scale = 1.0 if name == "positives_per_item" else 100.0
        values = (scale * value for value in figures)
        estimates[name] = dict(zip(("value", "low", "high"), values, strict=True))
    return estimates


def split_metrics(logits: Logits, labels: Labels, kind: str, info: ModelInfo) -> dict[str, float]:
    """Metrics of a split: rankings of the model's logits, tags and calibrated probabilities."""
    if kind != "complete":
        return {"selection_score": 100 * metrics.selection_score(logits, labels)}
    calibrated = info.calibrate()(torch.from_numpy(logits)).numpy()
    top = min(3, logits.shape[1])
    of_top = asdict(metrics.threshold_metrics(logits, labels, top_k=top))
    values = {
        "map": metrics.mean_average_precision(logits, labels),
        **asdict(tag_metrics(info.tag_rule.tagged(logits), labels)),
        "calibration_error": metrics.calibration_error(calibrated, labels),
        **{f"{name}_top{top}": value for name, value in of_top.items()},
        f"precision_at_{top}": metrics.precision_at_k(logits, labels, top),
        f"recall_at_{top}": metrics.recall_at_k(logits, labels, top),
        "ranking_loss": metrics.ranking_loss(logits, labels),
    }
    percent = {name: 100 * float(value) for name, value in values.items()}
    return {**percent, "coverage": float(metrics.coverage(logits, labels))}
