"""Batches of a table's items, and of a stream of items."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spml.data import LabelTable, load
from spml.data.images import loader as module
from spml.data.images.cache import open_cache
from spml.data.images.decode import decode
from spml.data.images.loader import MOST, PREFETCH, Feed, Item, Stream
from spml.train import fit
from tests.conftest import contents, outcome
from tests.data.conftest import refused
from tests.data.images.caching import direct

MODES = ["none", "disk", "memory", "device"]


@pytest.fixture
def table(pictures):
    return load(pictures).observed


def test_in_order_gives_every_picture_once(table):
    batches = list(Feed(table, 16).in_order(5))
    assert [len(rows) for _, rows in batches] == [5, len(table) - 5]
    assert torch.equal(torch.cat([x for x, _ in batches]), direct(table, 16))


def test_an_unreadable_picture_is_raised_or_left_out(table):
    (table.root / table.items[2]).write_bytes(b"no picture")
    feed = Feed(table, 16)
    with refused(r"photos.csv, line 4: .*2.jpg"):
        list(feed.in_order(4))
    reported = {}
    batches = list(feed.in_order(4, on_error=reported.__setitem__))
    assert list(reported) == [2] and "line 4" in str(reported[2])
    others = [row for row in range(len(table)) if row != 2]
    assert np.concatenate([rows for _, rows in batches]).tolist() == others
    assert [len(x) for x, _ in batches] == [len(rows) for _, rows in batches]
    one = list(feed.batches([np.array([2]), np.array([0])], on_error=reported.__setitem__))
    assert [rows.tolist() for _, rows in one] == [[0]]  # the first batch left no data


def test_arrays_are_used_unchanged_and_never_cached(tmp_path):
    x = np.arange(4 * 3 * 8 * 8, dtype=np.uint8).reshape(4, 3, 8, 8)
    table = LabelTable(list("abcd"), ["one"], np.ones((4, 1), np.int8), x=x)
    assert open_cache([table], 8, "disk", folder=tmp_path / "cache") is None
    assert not (tmp_path / "cache").exists()
    ((batch, rows),) = Feed(table, None).batches([np.array([3, 1])])
    assert (batch.numpy() == x[[3, 1]]).all() and rows.tolist() == [3, 1]
    ((batch, _),) = Feed(table, 4).batches([np.array([3, 1])])
    assert batch.shape == (2, 3, 4, 4)


def test_pictures_without_a_size_are_refused(table):
    with refused("give --size"):
        Feed(table, None)


def test_training_does_not_depend_on_the_cache(pictures, quick, tmp_path):
    settings = replace(quick, size=16, batch_size=4, flip=True, cache_dir=tmp_path / "cache")
    for mode in MODES:
        fit(load(pictures), replace(settings, cache=mode), tmp_path / mode, quiet=True)
        assert (tmp_path / "cache").exists() == (mode != "none")
    fit(load(pictures), settings, tmp_path / "default", quiet=True)
    ignored = ("result.json", "last.ckpt", "report.html")
    expected = contents(tmp_path / "none", without=ignored)
    compared = {"config.json", "history.jsonl", "best/model.safetensors", "scores/test.npz"}
    assert compared <= set(expected)
    for mode in (*MODES[1:], "default"):
        assert contents(tmp_path / mode, without=ignored) == expected
        assert outcome(tmp_path / mode) == outcome(tmp_path / "none")


def test_a_run_resumes_with_another_cache(pictures, quick, tmp_path):
    settings = replace(quick, size=16, batch_size=4, epochs=1, cache_dir=tmp_path / "cache")
    fit(load(pictures), settings, tmp_path / "run", quiet=True)
    settings = replace(settings, cache="none")
    again = fit(load(pictures), settings, tmp_path / "run", resume=True, quiet=True)
    timings = {key: again[key] for key in ("images_per_second", "seconds")}
    assert again == outcome(tmp_path / "run") | timings


def test_the_default_folder_comes_from_the_environment(table, tmp_path, monkeypatch):
    monkeypatch.setenv("SPML_CACHE", str(tmp_path / "mine"))
    open_cache([table], 16)
    assert len(list((tmp_path / "mine").iterdir())) == 1


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
    seen, shapes = [], []
    monkeypatch.setattr(module, "decode", lambda *at: seen.append(at) or decode(*at))

    def before(shape):
        assert not seen
        shapes.append(shape)

    batches = Stream(16, batch_size=batch_size).batches(photos, None, before)
    assert sum(len(group) for _, group in batches) == 7
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
    black = torch.zeros(3, 2, 2, dtype=torch.uint8)
    monkeypatch.setattr(module, "decode", lambda path, size: black)
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
