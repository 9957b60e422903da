import os
import threading

import numpy as np
import pytest
from PIL import Image

from spml.data.images import build as cache_build


@pytest.fixture
def write(tmp_path):
    """Writes text or bytes to a file of this test."""

    def writer(content, name="my.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return writer


@pytest.fixture
def positives():
    """Names of the positives of every item of a table."""

    def names(table):
        rows = zip(table.items, table.labels == 1, strict=True)
        return {
            item: [name for name, there in zip(table.classes, row, strict=True) if there]
            for item, row in rows
        }

    return names


@pytest.fixture
def picture(tmp_path):
    """Writes a small picture; the same shade of the same kind is the same bytes."""

    def writer(name, shade=0, **options):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(shade).integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path, **options)
        return path

    return writer


@pytest.fixture
def table(write, picture, tmp_path):
    """Writes a CSV, and a picture of its own for each item that is not there yet."""

    def writer(text, name="my.csv"):
        path = write(text, name)
        for shade, line in enumerate(text.splitlines()[1:]):
            image = path.parent / line.partition(",")[0]
            if not os.path.lexists(image):
                picture(image.relative_to(tmp_path), 1000 + shade)
        return path

    return writer


@pytest.fixture
def settled(monkeypatch):
    """As if the pictures had been there for long; the system's own time of change cannot be set back."""
    monkeypatch.setattr(cache_build, "RECENT", 0)


@pytest.fixture
def decoded(monkeypatch):
    """Names of the files that are decoded."""
    names = []

    def decode_bytes(data, path, *given, **named):
        names.append(path.name)
        return original(data, path, *given, **named)

    original = cache_build.decode_bytes
    monkeypatch.setattr(cache_build, "decode_bytes", decode_bytes)
    return names


class Gate:
    """Lets named pictures be decoded only when it is told to."""

    def __init__(self):
        self.shut, self.begun, self.names, self.original = (
            {},
            threading.Event(),
            [],
            cache_build.decode_bytes,
        )

    def __call__(self, data, path, *given, **named):
        self.names.append(path.name)
        self.begun.set()
        if path.name in self.shut:
            assert self.shut[path.name].wait(30)
        return self.original(data, path, *given, **named)

    def close(self, *names):
        self.shut |= {name: threading.Event() for name in names}

    def open(self):
        for event in self.shut.values():
            event.set()


@pytest.fixture
def gate(monkeypatch):
    """In place of decoding: open, until pictures are named that are to wait."""
    gate = Gate()
    monkeypatch.setattr(cache_build, "decode_bytes", gate)
    yield gate
    gate.open()
