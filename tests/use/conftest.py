from __future__ import annotations

import csv
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from spml.model import Classifier, ModelInfo, save_model

PICTURES = {"kind": "pictures", "size": 16, "upright": True, "features": None}
NAMES = ["red", "green", "blue"]


def write_model(
    folder: Path, classes=NAMES, *, backbone="tiny", head="linear", features=None, **info
) -> Path:
    """A model of untrained weights."""
    torch.manual_seed(2)
    how = (
        {"kind": "features", "size": None, "upright": True, "features": features}
        if features
        else PICTURES
    )
    values = {"thresholds": [0.5] * len(classes), "head": head} | info
    backbone = "linear" if features else backbone
    model = Classifier.build(backbone, len(classes), features=features, head=head)
    save_model(folder, model, ModelInfo(list(classes), backbone, how, **values))
    return folder


@pytest.fixture
def make_model(tmp_path):
    """The same in a folder of the test."""
    return lambda name="model", **given: write_model(tmp_path / name, **given)


@pytest.fixture
def model(make_model):
    """One whose threshold every picture reaches of green, and none of blue."""
    return make_model(thresholds=[0.5, 0.0, 0.999999])


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """One that is served, with a class whose name is markup; not to be changed."""
    return write_model(tmp_path_factory.mktemp("serve") / "model", ["red", "green", "<b>blue"])


@pytest.fixture
def noisy(monkeypatch):
    """Makes noise of every label of the data's own complete tables that was not observed; counts how often."""
    from spml.use import evaluate as room

    load, loaded = room.load, []

    def with_noise(*given, **named):
        found = load(*given, **named)
        table, rng = found.complete.labels, np.random.default_rng(6)
        noise = np.where(rng.random(table.shape) < 0.5, 1, -1).astype(np.int8)
        loaded.append(given)
        return replace(
            found,
            complete=found.complete.with_labels(np.where(found.observed.labels == 1, 1, noise)),
        )

    def start():
        monkeypatch.setattr(room, "load", with_noise)
        return loaded

    return start


def huge_png(path: Path, side: int = 20_000) -> None:
    """A PNG whose header says it is that large, and whose pixels are missing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    )


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def written(run):
    return (run / "calibration.json").read_bytes(), (run / "best" / "model.json").read_bytes()


def change(path, **arrays):
    with np.load(path) as file:
        kept = dict(file)
    np.savez_compressed(path, **(kept | arrays))


def observe_only(run):
    """Let the run be one whose epoch was chosen by observed labels."""
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "selection": "observed"}))
