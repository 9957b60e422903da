"""Readers of users' files and of run folders, each as a function of the bytes of one file.

A reader returns a value or raises UserError; anything else is a fault of ours.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spml.bench.record import read_collected
from spml.data import LabelTable, read
from spml.data.readers.coco import instances
from spml.data.readers.columns import Columns
from spml.errors import UserError
from spml.model import ModelInfo
from spml.model.backbones import read_tensors
from spml.model.store import read_info
from spml.runs import names, settings
from spml.runs.checkpoint import MARK, read_checkpoint
from spml.runs.run import Run
from spml.use.predict.inputs import Inputs
from spml.use.review.answers import read_answers

ITEMS = LabelTable(["a.png", "b.png"], ["cat", "dog"], np.array([[1, 0], [0, 1]], np.int8))
PICTURES = {"kind": "pictures", "size": 16, "upright": True, "features": None}
VECTORS = {"kind": "features", "size": None, "upright": True, "features": 2, "columns": ["x", "y"]}
INFOS = [ModelInfo(["cat", "dog"], "tiny", how, [0.5, 0.5]) for how in (PICTURES, VECTORS)]


@dataclass(frozen=True)
class Target:
    """Reads the bytes of one file in every way that a command reads such a file."""

    suffix: str
    reads: Callable[[Path], Iterator[Callable[[], object]]]

    def attempt(self, data: bytes, folder: Path) -> None:
        """Read the bytes from a file in the folder."""
        path = folder / f"model{self.suffix}"
        path.write_bytes(data)
        for read_once in self.reads(path):
            with suppress(UserError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read_once()


def _tables(path: Path, **options: object) -> None:
    """Read tables, whose names must be such that config.json can hold them."""
    for table in read(path, **options).values():
        for name in (*table.classes, *table.items):
            name.encode()


def _csv(path: Path) -> Iterator[Callable[[], object]]:
    yield lambda: _tables(path)
    yield lambda: _tables(path, labels="complete", on_error=lambda error: None)
    yield lambda: _tables(path, columns=Columns(features="*"), on_error=lambda error: None)
    yield lambda: _tables(path, classes=["cat", "dog"])
    yield from (lambda info=info: list(Inputs([path], info)) for info in INFOS)
    yield lambda: read_answers(path, ITEMS)


def _parquet(path: Path) -> Iterator[Callable[[], object]]:
    yield lambda: _tables(path)
    yield lambda: _tables(path, labels="complete", on_error=lambda error: None)
    yield lambda: list(Inputs([path], INFOS[0]))


def _npz(path: Path) -> Iterator[Callable[[], object]]:
    yield lambda: _tables(path)
    yield lambda: _tables(path, labels="complete", on_error=lambda error: None)
    yield from (lambda info=info: list(Inputs([path], info)) for info in INFOS)
    run = Run(path.parent)
    for place in (names.LABELS, names.OBSERVED, f"{names.SCORES}/test.npz"):
        beside = path.parent / place
        beside.parent.mkdir(exist_ok=True)
        beside.write_bytes(path.read_bytes())
    yield lambda: run.val_truth
    yield lambda: run.observed
    yield lambda: run.scores("test")


def _json(path: Path) -> Iterator[Callable[[], object]]:
    def coco() -> object:
        with instances(path, "train") as (classes, files, annotations):
            return classes, files, annotations

    for name in ("model.json", names.CONFIG, names.RESULT, names.HISTORY, names.RACE):
        (path.parent / name).write_bytes(path.read_bytes())
    run = Run(path.parent)
    yield coco
    yield lambda: read_info(path.parent)
    yield lambda: Run.read(path.parent)
    yield lambda: settings.mismatch(run.config, {"method": "gr", "options": {"q": [1, {}]}})
    yield lambda: (run.classes, run.method, run.best_epoch, run.val_map, run.race)
    yield lambda: read_collected(path)


def _checkpoint(path: Path) -> Iterator[Callable[[], object]]:
    yield lambda: read_checkpoint(path)
    yield lambda: read_tensors(path)
    data = path.read_bytes()
    path.write_bytes(data + MARK + hashlib.sha256(data).digest())  # past the checksum
    yield lambda: read_checkpoint(path)


def _weights(path: Path) -> Iterator[Callable[[], object]]:
    yield lambda: read_tensors(path)


TARGETS = {
    "csv": Target(".csv", _csv),
    "parquet": Target(".parquet", _parquet),
    "npz": Target(".npz", _npz),
    "json": Target(".json", _json),
    "checkpoint": Target(".ckpt", _checkpoint),
    "weights": Target(".safetensors", _weights),
}
