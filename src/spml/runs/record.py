"""What a run says of itself: config.json, model.json and result.json."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spml import metrics
from spml.data import Experiment, LabelTable
from spml.data.images.decode import read_file
from spml.errors import DataError
from spml.losses import Method, code
from spml.model import Classifier, ModelInfo
from spml.model.store import versions
from spml.runs.settings import RUNNING, Resolved

# options whose values come from complete labels
SIDE_INFORMATION = ("expected_positives", "priors", "mean_inverse_positives", "a")
SAMPLED = 32  # items of a list whose content is hashed: to read all would take as long as an epoch
NOT_OF_THE_RUN = (
    "cache",
    "cache_dir",
    "compile",
    "fused_norm",
    *RUNNING,
)  # change no result: a run may go on with others


def config(
    experiment: Experiment,
    settings: Resolved,
    options: dict[str, Any],
    method: Method,
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """All that is needed to repeat the run, and what it took from complete labels."""
    side: dict[str, Any] = {
        name: options[name] for name in SIDE_INFORMATION if options.get(name) is not None
    }
    if settings.selection == "complete":
        side["validation_labels"] = "complete"
    if method.trains_on == "complete":
        side["training_labels"] = "complete"
    return {
        "data": experiment.name,
        "data_version": experiment.version,
        "labels": experiment.label_kind,
        "classes": experiment.renamed,
        **{
            name: value
            for name, value in settings.as_config().items()
            if name not in NOT_OF_THE_RUN
        },
        "options": options,
        "observation": experiment.observation,
        "side_information": side,
        "observed_sha256": experiment.sha256,
        "data_sha256": fingerprint(experiment),
        "sample_sha256": sample(experiment),
        **({"method_sha256": own} if (own := code(settings.method)) else {}),
        "versions": versions(),
        **extra,
    }


def fingerprint(experiment: Experiment) -> str:
    """SHA-256 of what training and evaluation are given: names of items, known labels, rows, and the test split's.

    Pictures and arrays are not looked into: not every run reads them all before it begins.
    """
    digest = hashlib.sha256()
    for table in (experiment.observed, experiment.test):
        if table is not None:
            digest.update("\0".join(table.items).encode())
            digest.update("\0".join(table.classes).encode())
            for array in (table.sparse.indptr, table.sparse.indices, table.sparse.values):
                digest.update(np.ascontiguousarray(array).tobytes())
    for rows in (experiment.train_rows, experiment.val_rows):
        digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.hexdigest()


def sample(experiment: Experiment) -> str:
    """SHA-256 of what some items hold, by which data that lie elsewhere are known to be the same."""
    digest = hashlib.sha256()
    for table in (experiment.observed, experiment.test):
        if table is not None:
            for row in np.linspace(
                0, len(table) - 1, min(SAMPLED, len(table)), dtype=np.int64
            ).tolist():
                digest.update(_content(table, row))
    return digest.hexdigest()


def _content(table: LabelTable, row: int) -> bytes:
    if table.x is not None:
        return np.ascontiguousarray(table.x[row]).tobytes()
    try:
        return bytes(read_file(table.file(row)))
    except DataError:  # which is told of where it is decoded
        return b""


def other_data(config: Mapping[str, Any], data_sha256: str) -> bool:
    """Whether a run was trained on other data than those of this fingerprint; False where it does not say."""
    return config.get("data_sha256") not in (None, data_sha256)


def model_info(
    experiment: Experiment,
    settings: Resolved,
    options: dict[str, Any],
    model: Classifier,
    best: dict[str, Any],
) -> ModelInfo:
    """What using the model takes, and where it comes from."""
    pictures = model.mean.ndim == 4
    return ModelInfo(
        classes=list(experiment.classes),
        backbone=settings.backbone,
        preprocessing={
            "kind": "pictures" if pictures else "features",
            "size": settings.size if pictures else None,
            "upright": True,
            "features": None if pictures else int(model.mean.shape[1]),
        },
        thresholds=[0.5] * len(experiment.classes),
        head=settings.head,
        training={
            "data": experiment.name,
            "method": settings.method,
            "options": options,
            "selection": settings.selection,
            "seed": settings.seed,
            **best,
        },
        versions=versions(),
    )


def test_figures(logits: npt.NDArray[np.float32], test: LabelTable) -> dict[str, Any]:
    """mAP and AP of each class in percent, over the known labels.

    Where some class has known positives but no known negative, there is nothing to rank them against: the figure is
    then null, and `test_estimate` holds the estimate from observed positives, for comparing models only. Where some are
    unknown, `test_known` is the share of those that are not: figures over few chosen labels flatter.
    """
    truth = test.labels
    if not rankable(truth):
        estimate = 100 * metrics.estimated_map(logits, truth)
        return {"test_map": None, "per_class_ap": None, "test_estimate": estimate}
    aps = 100 * metrics.average_precision(logits, truth)
    known = known_share(truth)
    return {
        "test_map": float(aps.mean()),
        "per_class_ap": dict(zip(test.classes, aps.tolist(), strict=True)),
        **({"test_known": known} if known < 1 else {}),
    }


def known_share(truth: npt.NDArray[np.int8]) -> float:
    """Of labels, how many are known."""
    return float(np.count_nonzero(truth)) / max(truth.size, 1)


def rankable(truth: npt.NDArray[np.int8]) -> bool:
    """Whether every class that has a known positive has a known negative to rank it against."""
    present, absent = (truth == 1).any(axis=0), (truth == -1).any(axis=0)
    return not (present & ~absent).any()


def result(
    experiment: Experiment,
    settings: Resolved,
    options: dict[str, Any],
    best: dict[str, Any],
    tested: dict[str, Any],
    by: dict[str, str],
    spent: dict[str, float],
) -> dict[str, Any]:
    """result.json; its last two entries are its only timings.

    Args:
        experiment: the data.
        settings: of the run.
        options: of the method.
        best: the chosen epoch and its figure.
        tested: figures on test rows.
        by: the device and the precision in which it was computed, which settings may leave to be chosen.
        spent: seconds and pictures.
    """
    return {
        "method": settings.method,
        "options": options,
        "data": experiment.name,
        "data_version": experiment.version,
        "backbone": settings.backbone,
        "head": settings.head,
        "seed": settings.seed,
        "epochs": settings.epochs,
        "best_epoch": best["epoch"],
        "selection": settings.selection,
        "val_map": best["val_map"],
        **tested,
        "observed_sha256": experiment.sha256,
        **by,
        "images_per_second": round(spent["train_images"] / max(spent["train_seconds"], 1e-9), 1),
        "seconds": round(spent["seconds"], 2),
    }
