"""A cache that decodes while its pictures are used, is interrupted, or shares its folder."""

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch

from spml.data.images import build as module
from spml.data.images.cache import open_cache
from spml.data.images.decode import channels_last
from spml.data.images.store import Pool
from spml.errors import DataError, UserError
from tests.data.conftest import refused
from tests.data.images.caching import (
    MODES,
    SIZE,
    Lines,
    batch,
    direct,
    environment,
    failing_writes,
    feed_of,
    lines,
    make,
    opened,
)


@pytest.mark.parametrize("mode", MODES)
def test_pixels_are_those_of_decoding(tmp_path, decoded, settled, mode):
    table = make(tmp_path / "a", 30)
    expected, rng = direct(table), np.random.default_rng(0)
    with opened([table], tmp_path / "cache", mode) as cache:
        feed = feed_of(table, cache, mode)
        for _ in range(3):
            order = np.array_split(rng.permutation(len(table)), 4)
            for (x, rows), asked in zip(feed.batches(order), order, strict=True):
                assert (rows == asked).all() and torch.equal(x, expected[asked])
                assert x.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch(feed.cached, np.array([3, 3, 0]))[0], expected[[3, 3, 0]])
    assert sorted(decoded) == sorted(table.items)
    assert (feed.resident is not None) == (mode == "resident")
    with opened([table], tmp_path / "cache", mode) as cache:  # all pictures are cached
        assert cache.build is None
        feed = feed_of(table, cache, mode)
        batches = [np.array([5, 1]), np.arange(30)]
        for x, rows in [*feed.batches(batches), *feed.batches(batches)]:
            assert torch.equal(x, expected[rows])
    assert len(decoded) == 30


def test_a_complete_device_copy_replaces_all_reads(tmp_path, monkeypatch):
    table = make(tmp_path / "a", 9)
    expected = direct(table)
    with opened([table], tmp_path / "cache") as cache:
        feed = feed_of(table, cache, "resident")
        part = list(feed.batches([np.array([1, 2]), np.array([2, 4])]))
        assert feed.resident is None and all(torch.equal(x, expected[rows]) for x, rows in part)
        read, original = [], feed.cached.read

        def noted(rows, *arguments):
            read.extend(rows)
            return original(rows, *arguments)

        monkeypatch.setattr(feed.cached, "read", noted)
        assert torch.equal(torch.cat([x for x, _ in feed.in_order(4)]), expected)
        assert sorted(read) == [0, 3, 5, 6, 7, 8]  # the others are already resident
        assert torch.equal(feed.resident, channels_last(expected))
        monkeypatch.setattr(feed.cached, "read", None)
        monkeypatch.setattr(feed.cached, "stage", None)
        assert torch.equal(torch.cat([x for x, _ in feed.in_order(4)]), expected)
        assert list(feed.batches([])) == []


def test_pictures_are_decoded_in_the_order_of_first_rows_then_tables(tmp_path, decoded, settled):
    train = make(tmp_path / "a", 4)
    val = make(tmp_path / "b", 3, start=4)
    test = make(tmp_path / "c", 3, start=7)
    first, tables = [(val, [2, 0]), (train, [3, 0])], [train, val, test]
    with opened(tables, tmp_path / "cache", threads=1, first=first) as cache:
        cache.finish()
    assert decoded == [f"{i}.jpg" for i in (6, 4, 3, 0, 1, 2, 5, 7, 8, 9)]
    decoded.clear()
    first = [(val, np.array([1]))]
    open_cache([test, val], SIZE, folder=tmp_path / "other", threads=1, first=first)
    assert decoded == [f"{i}.jpg" for i in (5, 7, 8, 9, 4, 6)]


def test_a_batch_waits_only_for_its_own_pictures(tmp_path, gate, settled):
    table = make(tmp_path / "a", 8)
    gate.close("0.jpg", "5.jpg")
    with opened([table], tmp_path / "cache", threads=3) as cache, ThreadPoolExecutor(2) as pool:
        feed = feed_of(table, cache)
        assert gate.begun.wait(30)
        x, _ = batch(feed.cached, np.array([7, 3]))  # while 0 and 5 are blocked
        assert torch.equal(x, direct(table)[[7, 3]])
        assert [t for t in threading.enumerate() if t.name == "cache"]  # still decodes
        slow = pool.submit(batch, feed.cached, np.array([5, 1]))
        time.sleep(0.05)
        assert not slow.done()
        gate.open()
        assert torch.equal(slow.result(30)[0], direct(table)[[5, 1]])
    assert len(set(gate.names)) == len(gate.names)


def test_requested_pictures_are_decoded_next(tmp_path, gate, settled):
    table = make(tmp_path / "a", 8)
    gate.close("0.jpg")
    with opened([table], tmp_path / "cache", threads=1) as cache, ThreadPoolExecutor(1) as pool:
        assert gate.begun.wait(30)
        pictures, waits = feed_of(table, cache).cached, threading.Event()
        out = pictures.stage(np.array([6, 4])).host.numpy()
        asked = pool.submit(pictures.read, np.array([6, 4]), out, waits.set)
        assert waits.wait(30)
        gate.open()
        asked.result(30)
        cache.finish()
    assert gate.names == [f"{i}.jpg" for i in (0, 6, 4, 1, 2, 3, 5, 7)]


@pytest.mark.parametrize("mode", MODES)
def test_unreadable_pictures_are_reported_when_needed_and_at_the_end(tmp_path, gate, settled, mode):
    table = make(tmp_path / "a", 30)
    for i in (12, 9, 25):
        (tmp_path / "a" / f"{i}.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError) as before:
        open_cache([table], SIZE, folder=tmp_path / "other")
    gate.names.clear()
    gate.close("29.jpg")
    with (
        opened([table], tmp_path / "cache", mode, first=[(table, [25])]) as cache,
        ThreadPoolExecutor(1) as pool,
    ):
        feed = feed_of(table, cache, mode)
        good = table.take([0, 1, 2, 3])
        assert torch.equal(batch(feed.cached, np.arange(4))[0], direct(good))
        reported = pool.submit(batch, feed.cached, np.array([25, 2]))
        time.sleep(0.1)
        assert not reported.done()
        gate.open()
        with pytest.raises(DataError) as caught:
            reported.result(30)
        message = str(caught.value)
        assert message == str(before.value)
        assert all(part in message for part in ("line 11", "9.jpg", "; and 2 more;"))
        assert len(gate.names) == 30
        with refused(r"9\.jpg"):
            list(feed.in_order(8))
        assert torch.equal(batch(feed.cached, np.arange(4))[0], direct(good))
        with refused(r"9\.jpg"):
            cache.finish()


def test_concurrent_requests_decode_nothing_twice(tmp_path, decoded, settled):
    table = make(tmp_path / "a", 60)
    expected = direct(table)
    for mode in MODES:
        decoded.clear()
        with opened([table], tmp_path / mode, mode) as cache, ThreadPoolExecutor(8) as pool:
            pictures = feed_of(table, cache, mode).cached
            asked = [np.random.default_rng(i).integers(0, 60, 9) for i in range(40)]
            done = pool.map(partial(batch, pictures), asked)
            for rows, (x, errors) in zip(asked, done, strict=True):
                assert torch.equal(x, expected[rows]) and not errors
        assert sorted(decoded) == sorted(set(decoded))


def test_tables_of_the_same_files_share_one_copy(tmp_path):
    table = make(tmp_path / "a", 6)
    with opened([table], tmp_path / "cache", "memory") as cache:
        assert cache.pictures(table.take(np.arange(6))) is cache.pictures(table)
        assert cache.pictures(table.take([5, 4, 3, 2, 1, 0])) is not cache.pictures(table)


def test_after_an_early_close_only_the_remaining_pictures_are_decoded(tmp_path, gate, settled):
    table = make(tmp_path / "a", 20)
    gate.close("11.jpg")
    with opened([table], tmp_path / "cache", threads=1) as cache:
        feed = feed_of(table, cache)
        batch(feed.cached, np.arange(11))
        closing = threading.Timer(0.1, gate.open)  # the picture in decoding is finished first
        closing.start()
        cache.close()
        assert not [t for t in threading.enumerate() if t.name.startswith(("cache", "decode"))]
        assert torch.equal(batch(feed.cached, np.array([2, 10]))[0], direct(table)[[2, 10]])
        with pytest.raises(RuntimeError, match="closed"):
            batch(feed.cached, np.array([2, 19]))
        closing.join()
    assert gate.names == table.items[:12]
    with opened([table], tmp_path / "cache") as cache:
        assert torch.equal(batch(feed_of(table, cache).cached, np.arange(20))[0], direct(table))
    assert sorted(gate.names) == sorted(table.items)
    cache.finish()
    cache.close()


@pytest.mark.parametrize("mode", MODES)
def test_leaving_a_waiting_feed_ends_at_once(tmp_path, gate, settled, mode):
    table = make(tmp_path / "a", 40)
    gate.close("39.jpg")
    with opened([table], tmp_path / "cache", mode, threads=2) as cache:
        feed = feed_of(table, cache, mode)
        batches = feed.batches([np.array([0]), np.array([39]), np.array([39])])
        next(batches)
        late = threading.Timer(20, gate.open)
        late.start()
        began = time.monotonic()
        batches.close()
        assert time.monotonic() - began < 5
        assert not [t for t in threading.enumerate() if t.name.startswith("ThreadPool")]
        late.cancel()
        gate.open()


def test_a_full_disk_is_reported_to_the_first_reader(tmp_path, small_disk, settled):
    table = make(tmp_path / "a", 6)
    full = pytest.raises(UserError, match=r"10 kB are needed and 5 kB are free")
    with opened([table], tmp_path / "cache") as cache, full:
        batch(feed_of(table, cache).cached, np.array([0]))


def test_a_disk_that_fills_up_is_reported_when_needed(tmp_path, gate, settled):
    table = make(tmp_path / "a", 6)
    gate.close("0.jpg")
    full = OSError(28, "No space left on device")
    with opened([table], tmp_path / "cache", threads=1) as cache, failing_writes(full, after=4):
        gate.open()
        feed = feed_of(table, cache)
        assert torch.equal(batch(feed.cached, np.arange(4))[0], direct(table)[:4])
        for again in (lambda: batch(feed.cached, np.arange(6)), cache.finish):
            with pytest.raises(UserError, match=r"cache in .*: the disk is full.*--cache none"):
                again()
    assert lines(tmp_path / "cache") == 4


def test_pictures_decoded_by_another_process_are_used_immediately(
    tmp_path, gate, settled, monkeypatch
):
    monkeypatch.setattr(module, "COMMIT_SECONDS", 0.02)
    table, reported = make(tmp_path / "a", 12), Lines()
    other = table.take(np.arange(6))
    gate.close("5.jpg")
    with opened([other], tmp_path / "cache") as first:  # holds the write lock
        batch(feed_of(other, first).cached, np.arange(5))
        with (
            opened([table], tmp_path / "cache", progress=reported) as second,
            ThreadPoolExecutor(1) as pool,
        ):
            pictures = feed_of(table, second).cached
            assert torch.equal(batch(pictures, np.arange(5))[0], direct(table)[:5])
            assert "waiting for another process" in reported[-1]
            rest = pool.submit(batch, pictures, np.arange(12))
            time.sleep(0.1)
            assert not rest.done()
            gate.open()
            assert torch.equal(rest.result(30)[0], direct(table))
    assert sorted(gate.names) == sorted(table.items)


def test_waiting_for_another_process_can_be_cancelled(tmp_path):
    table = make(tmp_path / "a", 3)
    with Pool(tmp_path / "cache", SIZE).locked():
        cache = opened([table], tmp_path / "cache")
        began = time.monotonic()
        cache.close()
        assert time.monotonic() - began < 5
        with pytest.raises(RuntimeError, match="closed"):
            batch(cache.pictures(table), np.array([0]))


@pytest.mark.parametrize("leaves", ["interrupt", "end"])
def test_program_exit_does_not_wait_for_decoding(tmp_path, leaves):
    make(tmp_path / "a", 40)
    program = """if True:
        import sys, time
        from pathlib import Path
        from spml.data.images import build
        from tests.data.images.caching import feed_of, opened, table_of
        original, done = build.decode_bytes, []
        def slow(*arguments):
            done.append(arguments)
            time.sleep(0.1 if len(done) <= 4 else 1)
            return original(*arguments)
        build.decode_bytes = slow
        table = table_of(Path("a").absolute(), [f"{i}.jpg" for i in range(40)])
        for x, rows in feed_of(table, opened([table], Path("cache"), threads=2)).in_order(3):
            print("batch", flush=True)
            if sys.argv[1] == "end":
                break"""
    command = [sys.executable, "-c", program, leaves]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), **pipes) as process:
        assert process.stdout.readline() == b"batch\n"
        if leaves == "interrupt":
            process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert (b"KeyboardInterrupt" in message) == (leaves == "interrupt")
    assert process.returncode == {"interrupt": -signal.SIGINT, "end": 0}[leaves]
    assert 3 <= lines(tmp_path / "cache") < 20  # only the pictures in progress are finished
