import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spml.data.images import loader as module
from spml.data.images.decode import decode
from spml.data.images.loader import MOST, PREFETCH, Item, Stream
from tests.data.conftest import refused


@pytest.fixture
def photos(tmp_path):
    for i in range(7):
        Image.new("RGB", (20 + i, 16), (30 * i, 10, 200)).save(tmp_path / f"{i}.png")
    return [Item(f"{i}", tmp_path / f"{i}.png", where=f"line {i}: ") for i in range(7)]


@pytest.mark.parametrize("batch_size", [1, 3, 7, 50])
def test_batches_are_the_pictures_in_order(photos, batch_size):
    batches = list(Stream(16, batch_size=batch_size, threads=2).batches(photos))
    assert [item.name for _, group in batches for item in group] == [str(i) for i in range(7)]
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x, _ in batches)
    x = torch.cat([x for x, _ in batches])
    assert torch.equal(x, torch.stack([decode(item.path, 16) for item in photos]))


def test_arrays_mix_with_files_and_vectors_form_batches_alone(photos):
    array = np.full((3, 9, 9), 7, np.uint8)
    ((x, group),) = Stream(16).batches([photos[0], Item("array", x=array)])
    assert x.shape == (2, 3, 16, 16) and x[1].eq(7).all() and len(group) == 2
    vectors = [Item(str(i), x=np.full(4, i, np.float32)) for i in range(5)]
    batches = [x for x, _ in Stream(None, batch_size=2).batches(vectors)]
    assert torch.equal(torch.cat(batches)[:, 0], torch.arange(5.0))


@pytest.mark.parametrize(
    ("batch_size", "reported"), [(3, [(3, 3, 16, 16)]), (7, [(7, 3, 16, 16)]), (8, [])]
)
def test_the_shape_of_full_batches_is_reported_before_any_picture_is_decoded(
    photos, monkeypatch, batch_size, reported
):
    seen = []
    monkeypatch.setattr(
        module, "decode", lambda path, size: seen.append(path) or decode(path, size)
    )
    shapes = []

    def before(shape):
        assert not seen
        shapes.append(shape)

    assert (
        sum(
            len(group)
            for _, group in Stream(16, batch_size=batch_size).batches(photos, None, before)
        )
        == 7
    )
    assert shapes == reported and len(seen) == 7


def test_bad_pictures_are_left_out_and_reported_in_order(photos):
    for bad in (0, 4, 5):
        photos[bad].path.write_text("no picture")
    reported = []
    batches = list(Stream(16, batch_size=2).batches(photos, reported.append))
    assert [[item.name for item in group] for _, group in batches] == [["1"], ["2", "3"], ["6"]]
    assert all(len(group) == len(x) for x, group in batches)
    assert [str(error).split(":")[0] for error in reported] == ["line 0", "line 4", "line 5"]
    with refused("line 0"):
        list(Stream(16).batches(photos))


@pytest.mark.parametrize("batch_size", [1, 4, 200])
def test_prefetch_is_bounded_for_any_number_of_items(batch_size, monkeypatch):
    """Reading from an endless source is never more than the look-ahead in advance of its output."""
    monkeypatch.setattr(
        module, "decode", lambda path, size: torch.zeros(3, size, size, dtype=torch.uint8)
    )
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield Item("x", Path("x"))

    look_ahead = batch_size * max(2, min(PREFETCH, MOST // batch_size))
    batches, received = Stream(2, batch_size=batch_size, threads=2).batches(endless()), 0
    for _ in range(1000 // batch_size + 3):
        received += len(next(batches)[1])
        assert read - received <= look_ahead
    batches.close()
    assert look_ahead <= max(2 * batch_size, MOST)


def test_no_thread_is_left_when_the_reader_stops(photos):
    before = threading.active_count()
    batches = Stream(16, batch_size=1, threads=4).batches(photos)
    next(batches)
    batches.close()
    assert threading.active_count() == before
