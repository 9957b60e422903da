import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from PIL import Image

from spml.data import read
from spml.errors import DataError

FUZZ = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None
)


def refused(message):
    """Expect a DataError whose message matches a pattern."""
    return pytest.raises(DataError, match=message)


def train(*arguments, **options):
    """Read the training table of a source."""
    return read(*arguments, **options)["train"]


def splits(tables):
    """Return the items of each split."""
    return {split: list(table.items) for split, table in tables.items()}


def rows(table):
    """Return the labels of each item."""
    return dict(zip(table.items, table.labels.tolist(), strict=True))


def positives(table):
    """Return the names of the positives of each item."""
    return {item: table.known(row)[0] for row, item in enumerate(table.items)}


def save_arrays(path, labels, **others):
    """Write items of two features with the classes a, b and c; `others` replace arrays."""
    stored = {"x": np.zeros((len(labels), 2), np.float32), "labels": np.asarray(labels, np.int8)}
    np.savez(path, **stored | {"classes": list("abc")[: stored["labels"].shape[1]]} | others)
    return path


@pytest.fixture
def write(tmp_path):
    """Write text or bytes to a file of this test."""

    def writer(content, name="my.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return writer


@pytest.fixture
def damage(write, tmp_path):
    """Replace the content of a file, or remove it if the content is None."""

    def damager(name, content):
        if content is None:
            (tmp_path / name).unlink()
        else:
            write(content, name)

    return damager


@pytest.fixture
def picture(tmp_path):
    """Write a small picture; the same shade and format give the same bytes."""

    def writer(name, shade=0, **options):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(shade).integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path, **options)
        return path

    return writer


@pytest.fixture
def table(write, picture, tmp_path):
    """Write a CSV, and a different picture for each item whose file is missing."""

    def writer(text, name="my.csv"):
        path = write(text, name)
        for shade, line in enumerate(text.splitlines()[1:]):
            image = path.parent / line.partition(",")[0]
            if not os.path.lexists(image):
                picture(image.relative_to(tmp_path), 1000 + shade)
        return path

    return writer
