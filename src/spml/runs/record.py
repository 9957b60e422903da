"""The records that a run writes about itself: its configuration, its model and its result."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spml import metrics
from spml.data import Experiment, LabelTable
from spml.data.images.cache import Cache
from spml.data.images.decode import read_file
from spml.data.images.store import Stamp, path_of, stamp_of
from spml.errors import DataError
from spml.losses import Method, code
from spml.model import Classifier, ModelInfo
from spml.model.query import RELEASED
from spml.model.store import versions
from spml.runs.settings import DATA_HASH, SAMPLE, Resolved, recorded

# Options whose values come from complete labels.
SIDE_INFORMATION = ("expected_positives", "priors", "mean_inverse_positives", "a", "missed_rate")
SAMPLED = 32  # items of a table whose content is always compared
TRAIN, TEST = "train", "test"  # the train list with its validation rows, and the test split
HASH_BYTES = 16  # of the hash of an item


def config(
    experiment: Experiment,
    settings: Resolved,
    options: dict[str, Any],
    method: Method,
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """Build config.json: everything to repeat the run, and the complete labels it used."""
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
        **recorded(settings.as_config()),
        **({"head_structure": RELEASED} if settings.head.startswith("query") else {}),
        "options": options,
        "observation": experiment.observation,
        "side_information": side,
        "observed_sha256": experiment.sha256,
        DATA_HASH: fingerprint(experiment),
        SAMPLE: sample(experiment),
        **({"method_sha256": own} if (own := code(settings.method)) else {}),
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "processes": settings.devices * settings.nodes,
        **extra,
    }


def fingerprint(experiment: Experiment) -> str:
    """Return the SHA-256 of the item names, classes, known labels and rows of all splits.

    Pictures and arrays are not hashed: a run need not read them all before it begins.
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
    """Return the SHA-256 of the content of some items, which identifies data that were moved."""
    digest = hashlib.sha256()
    for table in (experiment.observed, experiment.test):
        if table is not None:
            rows = np.linspace(0, len(table) - 1, min(SAMPLED, len(table)), dtype=np.int64)
            for row in rows.tolist():
                digest.update(_content(table, row))
    return digest.hexdigest()


def _content(table: LabelTable, row: int) -> bytes | bytearray:
    if table.x is not None:
        return np.ascontiguousarray(table.x[row]).tobytes()
    try:
        return read_file(table.file(row))
    except DataError:  # decoding reports it
        return b""


def tables(experiment: Experiment) -> dict[str, LabelTable]:
    """Return the train list with its validation rows, and the test split."""
    every = {TRAIN: experiment.observed, TEST: experiment.test}
    return {part: table for part, table in every.items() if table is not None}


def contents(experiment: Experiment, cache: Cache | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the hashes of all items by name, from which `runs.contents` notices changes."""
    return {
        f"{part}_{name}": array
        for part, table in tables(experiment).items()
        for name, array in hashes(table, cache).items()
    }


def hashes(table: LabelTable, cache: Cache | None = None) -> dict[str, npt.NDArray[Any]]:
    """Hash the items of a table; a file that the cache has read is not read again."""
    rows = range(len(table))
    read = {} if cache is None else {row: cache.record(table, row) for row in rows}
    known = {
        row: bytes.fromhex(record.content)[:HASH_BYTES]
        for row, record in read.items()
        if record is not None
    }
    lacking = [row for row in rows if row not in known]
    known |= dict(zip(lacking, digests(table, lacking), strict=True))
    joined = np.frombuffer(b"".join(known[row] for row in rows), np.uint8)
    return {
        "names": hashed_names(table),
        "digests": joined.reshape(len(table), HASH_BYTES),
        "status": file_status(table),
    }


def hashed_names(table: LabelTable) -> npt.NDArray[np.uint64]:
    """Return a hash of each item's name."""
    names = (hashlib.sha256(name.encode()).digest()[:8] for name in table.items)
    return np.frombuffer(b"".join(names), np.uint64)


def file_status(table: LabelTable) -> npt.NDArray[np.int64]:
    """Return the length and the time of modification of each item's file; zeros for arrays."""
    status = np.zeros((len(table), 2), np.int64)
    if table.x is None:
        for row in range(len(table)):
            status[row] = (stamp_of(path_of(table, row)) or Stamp(0, 0, 0))[:2]
    return status


def digests(table: LabelTable, rows: Sequence[int]) -> list[bytes]:
    """Hash the content of rows; zeros if a file cannot be read, which decoding reports."""

    def digest(row: int) -> bytes:
        content = _content(table, row)
        return hashlib.sha256(content).digest()[:HASH_BYTES] if content else bytes(HASH_BYTES)

    return [digest(row) for row in rows]


def other_data(config: Mapping[str, Any], data_sha256: str) -> bool:
    """Whether a run was trained on data with another fingerprint; False if it recorded none."""
    return config.get(DATA_HASH) not in (None, data_sha256)


def model_info(
    experiment: Experiment,
    settings: Resolved,
    options: dict[str, Any],
    model: Classifier,
    best: dict[str, Any],
) -> ModelInfo:
    """Build model.json: what using the model needs, and how it was trained."""
    pictures = model.mean.ndim == 4
    names = list(experiment.observed.feature_names)
    return ModelInfo(
        classes=list(experiment.classes),
        backbone=settings.backbone,
        preprocessing={
            "kind": "pictures" if pictures else "features",
            "size": settings.size if pictures else None,
            "upright": True,
            "features": None if pictures else int(model.mean.shape[1]),
            **({"columns": names} if names else {}),
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
    """Return the mAP and the AP of each class in percent, over the known labels.

    If a class has known positives but no known negative to rank them against, both are null, and
    `test_score` is the estimate from observed positives, for comparing models only. If some
    labels are unknown, `test_known` is the share of known ones: figures over few selected labels
    are too high.
    """
    truth = test.labels
    if not rankable(truth):
        estimate = 100 * metrics.selection_score(logits, truth)
        return {"test_map": None, "per_class_ap": None, "test_score": estimate}
    aps = 100 * metrics.average_precision(logits, truth)
    known = known_share(truth)
    return {
        "test_map": float(aps.mean()),
        "per_class_ap": dict(zip(test.classes, aps.tolist(), strict=True)),
        **({"test_known": known} if known < 1 else {}),
    }


def known_share(truth: npt.NDArray[np.int8]) -> float:
    """Return the share of known labels."""
    return float(np.count_nonzero(truth)) / max(truth.size, 1)


def rankable(truth: npt.NDArray[np.int8]) -> bool:
    """Whether every class with a known positive has a known negative to rank it against."""
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
    """Build result.json; its last two entries are its only timings.

    `best` is the chosen epoch with its validation figure, `tested` holds the figures on the test
    rows, `by` the device and precision, which the settings may leave open, and `spent` the seconds
    and the number of pictures.
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
