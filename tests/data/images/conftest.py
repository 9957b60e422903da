import shutil
import threading

import pytest

from spml.data.images import build as cache_build


@pytest.fixture
def settled(monkeypatch):
    """Treat the pictures as old files; the time of a status change cannot be set."""
    monkeypatch.setattr(cache_build, "RECENT", 0)


class Gate:
    """Block the decoding of named pictures until the gate opens."""

    def __init__(self):
        self.shut = {}
        self.begun = threading.Event()
        self.names = []
        self.original = cache_build.decode_bytes

    def __call__(self, data, path, *args, **kwargs):
        self.names.append(path.name)
        self.begun.set()
        if path.name in self.shut:
            assert self.shut[path.name].wait(30)
        return self.original(data, path, *args, **kwargs)

    def close(self, *names):
        self.shut |= {name: threading.Event() for name in names}

    def open(self):
        for event in self.shut.values():
            event.set()


@pytest.fixture
def gate(monkeypatch):
    """A replacement of the decoder that blocks only the pictures named in it."""
    gate = Gate()
    monkeypatch.setattr(cache_build, "decode_bytes", gate)
    yield gate
    gate.open()


@pytest.fixture
def decoded(gate):
    """Names of the decoded files."""
    return gate.names


@pytest.fixture
def small_disk(monkeypatch):
    """Report 5,000 free bytes."""
    usage = shutil.disk_usage("/")._replace(free=5000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
