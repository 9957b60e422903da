"""Evaluation of a finished run on one of its splits."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from spml import metrics
from spml.atomic import write_json
from spml.data import Experiment, load
from spml.data.feed import Feed
from spml.data.files import is_named
from spml.errors import UserError
from spml.model import load_model
from spml.train.evaluate import predict_logits
from spml.train.record import rankable
from spml.train.run import read_json


def assess(
    run: Path, split: Literal["val", "test"], *, root: Path | None = None, batch_size: int = 64
) -> dict[str, Any]:
    """Metrics of the chosen model on a split, in percent; written to eval-<split>.json in the run folder.

    Validation is measured with the labels that chose the epoch, so a run that saw single positives stays honest.
    """
    if batch_size < 1:
        raise UserError(f"--batch-size must be above 0, not {batch_size}")
    config = read_json(run / "config.json")
    model, info = load_model(run)
    experiment = run_data(config, info.classes, root)
    table, labels, kind = run_split(experiment, split, str(config["selection"]))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    feed = Feed(table, info.preprocessing["size"], upright=bool(info.preprocessing["upright"]))
    logits = predict_logits(model.to(device), feed, batch_size, device)
    result = {
        "split": split,
        "labels": kind,
        "items": len(table),
        "metrics": _metrics(logits, labels, kind, np.array(info.thresholds)),
    }
    if kind == "complete":
        aps = 100 * metrics.average_precision(logits, labels)
        result["per_class_ap"] = dict(zip(info.classes, aps.tolist(), strict=True))
    write_json(run / f"eval-{split}.json", result)
    return result


def run_data(config: dict[str, Any], classes: list[str], root: Path | None) -> Experiment:
    """The data that a run was trained on, in the classes of its model."""
    missing = [name for name in ("data", "labels", "selection", "observe_seed", "split_seed") if name not in config]
    if missing:
        raise UserError(f"config.json of the run lacks {', '.join(missing)}; it is not whole")
    data = str(config["data"])
    experiment = load(
        data,
        root or config.get("root"),
        config["labels"],
        config["observe_seed"],
        config["split_seed"],
        classes=None if is_named(data) else classes,
        observe=config.get("observe", "uniform"),
        val=config.get("val"),
        test=config.get("test"),
    )
    if list(experiment.classes) != classes:
        extra = [name for name in experiment.classes if name not in classes]
        hint = f", such as {extra[0]!r}" if extra else ""
        raise UserError(f"{data} has {len(experiment.classes)} classes, the model {len(classes)}{hint}")
    return experiment


def run_split(experiment: Experiment, split: str, selection: str) -> tuple[Any, Any, str]:
    """The items of a split, their labels, and whether these are complete or observed."""
    if split == "test":
        if experiment.test is None:
            raise UserError(f"{experiment.name} has no test split; give --split val")
        labels = experiment.test.labels
        return experiment.test, labels, "complete" if rankable(labels) else "observed"
    return experiment.observed.take(experiment.val_rows), experiment.validation_labels(selection), selection


def _metrics(logits: Any, labels: Any, kind: str, thresholds: Any) -> dict[str, float]:
    if kind != "complete":
        return {"estimated_map": 100 * metrics.estimated_map(logits, labels)}
    top = min(3, logits.shape[1])
    values = {
        "map": metrics.mean_average_precision(logits, labels),
        **asdict(metrics.threshold_metrics(logits, labels, threshold=thresholds)),
        **{f"{name}_top{top}": v for name, v in asdict(metrics.threshold_metrics(logits, labels, top_k=top)).items()},
        f"precision_at_{top}": metrics.precision_at_k(logits, labels, top),
        f"recall_at_{top}": metrics.recall_at_k(logits, labels, top),
        "ranking_loss": metrics.ranking_loss(logits, labels),
    }
    percent = {name: 100 * float(value) for name, value in values.items()}
    return {**percent, "coverage": float(metrics.coverage(logits, labels))}
