from __future__ import annotations

import csv
import io
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spml.model import Classifier, ModelInfo, save_model
from spml.model.store import read_info
from tests.conftest import edit, spml

PICTURES = {"kind": "pictures", "size": 16, "upright": True, "features": None}
NAMES = ["red", "green", "blue"]


@pytest.fixture
def refused(capsys):
    """Run a command that ends with exit code 2 and one line, and return the line."""

    def run(line):
        capsys.readouterr()
        assert spml(line) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1, error
        return error

    return run


@pytest.fixture
def photo(pictures):
    """One of the pictures."""
    return pictures.parent / "photos" / "3.png"


def write_model(
    folder: Path, classes=NAMES, *, backbone="tiny", head="linear", features=None, **info
) -> Path:
    """Write a model with untrained weights."""
    torch.manual_seed(2)
    how = PICTURES
    if features:
        backbone = "linear"
        how = {"kind": "features", "size": None, "upright": True, "features": features}
    values = {"thresholds": [0.5] * len(classes), "head": head} | info
    model = Classifier.build(backbone, len(classes), features=features, head=head)
    save_model(folder, model, ModelInfo(list(classes), backbone, how, **values))
    return folder


@pytest.fixture
def make_model(tmp_path):
    """Write a model in a folder of the test."""
    return lambda name="model", **options: write_model(tmp_path / name, **options)


@pytest.fixture
def model(make_model):
    """A model that tags every picture as green and none as blue."""
    return make_model(thresholds=[0.5, 0.0, 0.999999])


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A model to serve, with a class named like markup; tests must not change it."""
    return write_model(tmp_path_factory.mktemp("serve") / "model", ["red", "green", "<b>blue"])


@pytest.fixture
def changed(monkeypatch):
    """Let the data of a run change after training by a function; return the loads from then on."""
    from spml.use import evaluate

    load, loaded = evaluate.load, []

    def change_by(how):
        def load_changed(*args, **named):
            loaded.append(args)
            return how(load(*args, **named))

        monkeypatch.setattr(evaluate, "load", load_changed)
        return loaded

    return change_by


def with_noise(data):
    """Replace every unobserved label of the complete table by noise."""
    rng = np.random.default_rng(6)
    noise = np.where(rng.random(data.complete.labels.shape) < 0.5, 1, -1).astype(np.int8)
    labels = np.where(data.observed.labels == 1, 1, noise)
    return replace(data, complete=data.complete.with_labels(labels))


def huge_png(width: int = 20_000, height: int = 20_000) -> bytes:
    """A PNG of a few bytes whose header claims this size."""
    buffer = io.BytesIO()
    Image.new("RGB", (1, 1)).save(buffer, "PNG")
    data = bytearray(buffer.getvalue())
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    return bytes(data)


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def written(run):
    return (run / "calibration.json").read_bytes(), (run / "best" / "model.json").read_bytes()


def change(path, **arrays):
    with np.load(path) as file:
        stored = dict(file)
    np.savez_compressed(path, **(stored | arrays))


def observe_only(run):
    """Change a run to one whose epoch was chosen by observed labels."""
    edit(run / "config.json", selection="observed")


def scores_file(run):
    """File of the validation scores of a run's chosen epoch."""
    return run / "scores" / f"val-{read_info(run).training['epoch']:02d}.npz"
