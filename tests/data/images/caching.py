"""Pictures, tables and caches for the tests of the cache."""

import multiprocessing
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from spml.data import LabelTable
from spml.data.images.cache import open_cache
from spml.data.images.decode import decode
from spml.data.images.loader import Feed
from spml.data.table import Places
from tests.data.images.test_decode import scene

SIZE = 24
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["spml.data.images.cache"])  # imports torch once for all processes
MODES = ["disk", "memory", "device", "resident"]


class Lines(list):
    """Store the reported messages."""

    begun = 0

    def line(self, text):
        self.append(text)

    def begin(self, what, total):
        self.begun += total

    def advance(self, count):
        pass


def make(folder, count, start=0, shape=(40, 30), kind="jpg"):
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{i}.{kind}" for i in range(start, start + count)]
    for i, name in enumerate(names, start):
        scene(*shape, seed=i).save(folder / name)
        age(folder / name)
    return table_of(folder, names)


def age(path, seconds=1000):
    """Make a file look older: recent times are not trusted."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - seconds * 10**9))


def table_of(folder, names):
    places = Places.of(folder / "list.csv", "line", np.arange(2, 2 + len(names)))
    return LabelTable(names, ["one"], np.ones((len(names), 1), np.int8), root=folder, places=places)


def pixels(table, folder, mode="disk", progress=None):
    cache = open_cache([table], SIZE, mode, folder=folder, progress=progress)
    return torch.cat([x for x, _ in Feed(table, SIZE, cache=cache).in_order(7)])


def direct(table, size=SIZE):
    return torch.stack([decode(table.root / item, size) for item in table.items])


def file_in(folder, name):
    (path,) = folder.glob(f"*/{name}")
    return path


def lines(cache):
    return sum(path.read_bytes().count(b"\n") for path in cache.glob("*/index"))


def batch(pictures, rows):
    """Return the readable pictures of the rows as a feed reads them, and the errors."""
    staged = pictures.stage(rows)
    staged.errors = pictures.read(staged.lacking, staged.host.numpy())
    return pictures.send(staged), staged.errors


def feed_of(table, cache, mode="disk"):
    """A feed; "resident" keeps the pictures in memory, as on a device."""
    feed = Feed(table, SIZE, cache=cache)
    if mode == "resident":
        feed.cached.resident = torch.full((len(table), SIZE, SIZE, 3), 7, dtype=torch.uint8)
    return feed


@contextmanager
def failing_writes(error, after):
    """Let writing pixels fail after a number of pictures."""
    original, written = os.pwrite, []

    def pwrite(*args):
        if len(written) == after:
            raise error
        written.append(args)
        return original(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        yield


def environment(**variables):
    """Return the environment of a program that imports the tests."""
    paths = [str(Path(__file__).parents[3]), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}


def opened(tables, folder, mode="disk", **options):
    mode = "disk" if mode == "resident" else mode
    return open_cache(tables, SIZE, mode, folder=folder, background=True, **options)
