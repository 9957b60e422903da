from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
import torch

from spml.model import Classifier, ModelInfo, save_model

PICTURES = {"kind": "pictures", "size": 16, "upright": True, "features": None}
NAMES = ["red", "green", "blue"]


@pytest.fixture
def make_model(tmp_path):
    """A model of untrained weights in a folder of its own."""

    def make(name="model", *, classes=NAMES, backbone="tiny", head="linear", features=None, **info) -> Path:
        torch.manual_seed(2)
        how = {"kind": "features", "size": None, "upright": True, "features": features} if features else PICTURES
        values = {"thresholds": [0.5] * len(classes), "head": head} | info
        backbone = "linear" if features else backbone
        model = Classifier.build(backbone, len(classes), features=features, head=head)
        save_model(tmp_path / name, model, ModelInfo(list(classes), backbone, how, **values))
        return tmp_path / name

    return make


def huge_png(path: Path, side: int = 20_000) -> None:
    """A PNG whose header says it is that large, and whose pixels are missing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
