"""A cache that decodes while its pictures are used."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from spml.data import cache_build as module
from spml.data.cache import open_cache
from spml.data.cache_pool import Pool
from spml.data.feed import Feed
from spml.data.pictures import channels_last
from spml.errors import DataError, UserError
from tests.data.test_cache import FORK, SIZE, Lines, decoded, direct, lines, make, settled, table_of

__all__ = ["decoded", "settled"]  # fixtures
MODES = ["disk", "memory", "device", "resident"]


class Gate:
    """Lets named pictures be decoded only when it is told to."""

    def __init__(self):
        self.shut, self.begun, self.names, self.original = {}, threading.Event(), [], module.decode_bytes

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
    gate = Gate()
    monkeypatch.setattr(module, "decode_bytes", gate)
    yield gate
    gate.open()


def batch(pictures, rows):
    """The pictures of the rows, without those that cannot be read, and why; as a feed takes them."""
    staged = pictures.stage(rows)
    staged.errors = pictures.read(staged.lacking, staged.host.numpy())
    return pictures.send(staged), staged.errors


def feed_of(table, cache, mode="disk"):
    """A feed; "resident" is what a device has, here in memory."""
    feed = Feed(table, SIZE, cache=cache)
    if mode == "resident":
        feed.cached.resident = torch.full((len(table), SIZE, SIZE, 3), 7, dtype=torch.uint8)
    return feed


def opened(tables, folder, mode="disk", **given):
    mode = "disk" if mode == "resident" else mode
    return open_cache(tables, SIZE, mode, folder=folder, background=True, **given)


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
    with opened([table], tmp_path / "cache", mode) as cache:  # all is there
        assert cache.build is None
        feed = feed_of(table, cache, mode)
        batches = [np.array([5, 1]), np.arange(30)]
        assert all(torch.equal(x, expected[rows]) for _ in range(2) for x, rows in feed.batches(batches))
    assert len(decoded) == 30


def test_a_complete_copy_on_the_device_is_all_that_is_used(tmp_path, monkeypatch):
    table = make(tmp_path / "a", 9)
    expected = direct(table)
    with opened([table], tmp_path / "cache") as cache:
        feed = feed_of(table, cache, "resident")
        part = list(feed.batches([np.array([1, 2]), np.array([2, 4])]))
        assert feed.resident is None and all(torch.equal(x, expected[rows]) for x, rows in part)
        read = []
        original = feed.cached.read
        monkeypatch.setattr(feed.cached, "read", lambda rows, *given: read.extend(rows) or original(rows, *given))
        assert torch.equal(torch.cat([x for x, _ in feed.in_order(4)]), expected)
        assert sorted(read) == [0, 3, 5, 6, 7, 8]  # the others are there
        assert torch.equal(feed.resident, channels_last(expected))
        monkeypatch.setattr(feed.cached, "read", None)
        monkeypatch.setattr(feed.cached, "stage", None)
        assert torch.equal(torch.cat([x for x, _ in feed.in_order(4)]), expected)
        assert list(feed.batches([])) == []


def test_the_order_is_that_of_the_first_rows_and_then_of_the_tables(tmp_path, decoded, settled):
    train, val, test = make(tmp_path / "a", 4), make(tmp_path / "b", 3, start=4), make(tmp_path / "c", 3, start=7)
    with opened([train, val, test], tmp_path / "cache", threads=1, first=[(val, [2, 0]), (train, [3, 0])]) as cache:
        cache.finish()
    assert decoded == [f"{i}.jpg" for i in (6, 4, 3, 0, 1, 2, 5, 7, 8, 9)]
    decoded.clear()
    open_cache([test, val], SIZE, folder=tmp_path / "other", threads=1, first=[(val, np.array([1]))])
    assert decoded == [f"{i}.jpg" for i in (5, 7, 8, 9, 4, 6)]


def test_a_batch_waits_for_its_own_pictures_alone(tmp_path, gate, settled):
    table = make(tmp_path / "a", 8)
    gate.close("0.jpg", "5.jpg")
    with opened([table], tmp_path / "cache", threads=3) as cache, ThreadPoolExecutor(2) as pool:
        feed = feed_of(table, cache)
        assert gate.begun.wait(30)
        x, _ = batch(feed.cached, np.array([7, 3]))  # while 0 and 5 take long
        assert torch.equal(x, direct(table)[[7, 3]])
        assert not cache.build._over
        slow = pool.submit(batch, feed.cached, np.array([5, 1]))
        time.sleep(0.05)
        assert not slow.done()
        gate.open()
        assert torch.equal(slow.result(30)[0], direct(table)[[5, 1]])
    assert len(set(gate.names)) == len(gate.names)


def test_what_is_asked_for_is_decoded_next(tmp_path, gate, settled):
    table = make(tmp_path / "a", 8)
    gate.close("0.jpg")
    with opened([table], tmp_path / "cache", threads=1) as cache, ThreadPoolExecutor(1) as pool:
        assert gate.begun.wait(30)
        asked = pool.submit(batch, feed_of(table, cache).cached, np.array([6, 4]))
        while not cache.build._waiters:
            time.sleep(0.001)
        gate.open()
        asked.result(30)
        cache.finish()
    assert gate.names == [f"{i}.jpg" for i in (0, 6, 4, 1, 2, 3, 5, 7)]


@pytest.mark.parametrize("mode", MODES)
def test_unreadable_pictures_are_told_when_needed_and_when_all_is_over(tmp_path, gate, settled, mode):
    table = make(tmp_path / "a", 30)
    for i in (12, 9, 25):
        (tmp_path / "a" / f"{i}.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError) as before:
        open_cache([table], SIZE, folder=tmp_path / "other")
    gate.names.clear()
    gate.close("29.jpg")
    with opened([table], tmp_path / "cache", mode, first=[(table, [25])]) as cache, ThreadPoolExecutor(1) as pool:
        feed = feed_of(table, cache, mode)
        good = table.take([0, 1, 2, 3])
        assert torch.equal(batch(feed.cached, np.arange(4))[0], direct(good))
        told = pool.submit(batch, feed.cached, np.array([25, 2]))
        time.sleep(0.1)
        assert not told.done()
        gate.open()
        with pytest.raises(DataError) as caught:
            told.result(30)
        assert str(caught.value) == str(before.value)
        assert "line 11" in str(caught.value) and "9.jpg" in str(caught.value) and "; and 2 more;" in str(caught.value)
        assert len(gate.names) == 30
        with pytest.raises(DataError, match=r"9\.jpg"):
            list(feed.in_order(8))
        assert torch.equal(batch(feed.cached, np.arange(4))[0], direct(good))
        with pytest.raises(DataError, match=r"9\.jpg"):
            cache.finish()


def test_closed_in_the_middle_only_the_rest_is_decoded_later(tmp_path, gate, settled):
    table = make(tmp_path / "a", 20)
    gate.close("11.jpg")
    with opened([table], tmp_path / "cache", threads=1) as cache:
        feed = feed_of(table, cache)
        batch(feed.cached, np.arange(11))
        closing = threading.Timer(0.1, gate.open)  # the picture that is in work is waited for
        closing.start()
        cache.close()
        assert not [t for t in threading.enumerate() if t.name in ("cache", "decode")]
        assert torch.equal(batch(feed.cached, np.array([2, 10]))[0], direct(table)[[2, 10]])
        with pytest.raises(RuntimeError, match="closed"):
            batch(feed.cached, np.array([2, 19]))
        closing.join()
    done = list(gate.names)
    assert done == table.items[:12]
    with opened([table], tmp_path / "cache") as cache:
        assert torch.equal(batch(feed_of(table, cache).cached, np.arange(20))[0], direct(table))
    assert sorted(gate.names) == sorted(table.items)
    cache.finish()
    cache.close()


def test_many_threads_may_ask_and_nothing_is_decoded_twice(tmp_path, decoded, settled):
    table = make(tmp_path / "a", 60)
    expected = direct(table)
    for mode in MODES:
        decoded.clear()
        with opened([table], tmp_path / mode, mode) as cache, ThreadPoolExecutor(8) as pool:
            pictures = feed_of(table, cache, mode).cached
            asked = [np.random.default_rng(i).integers(0, 60, 9) for i in range(40)]
            for rows, (x, errors) in zip(asked, pool.map(partial(batch, pictures), asked), strict=True):
                assert torch.equal(x, expected[rows]) and not errors
        assert sorted(decoded) == sorted(set(decoded))


@pytest.mark.parametrize("mode", MODES)
def test_leaving_a_feed_that_waits_ends_at_once(tmp_path, gate, settled, mode):
    table = make(tmp_path / "a", 40)
    gate.close("39.jpg")
    with opened([table], tmp_path / "cache", mode, threads=2) as cache:
        feed = feed_of(table, cache, mode)
        before = threading.active_count()
        batches = feed.batches([np.array([0]), np.array([39]), np.array([39])])
        next(batches)
        late = threading.Timer(20, gate.open)
        late.start()
        began = time.monotonic()
        batches.close()
        assert time.monotonic() - began < 5 and threading.active_count() <= before + 1
        late.cancel()
        gate.open()


def test_memory_that_other_tables_will_take_counts(tmp_path, monkeypatch):
    table = make(tmp_path / "a", 6)
    size = 3 * SIZE * SIZE
    monkeypatch.setattr("spml.data.cache_pictures.free_memory", lambda device: 10 * size)
    with opened([table], tmp_path / "cache", "memory") as cache:
        first, other = cache.pictures(table), table.take([5, 4, 3, 2, 1, 0])
        assert cache.pictures(table.take(np.arange(6))) is first  # the same files
        with pytest.raises(UserError, match=r"10 kB do not fit well in the 7 kB that are free; give --cache disk"):
            cache.pictures(other)
        batch(first, np.arange(6))
        assert first.promised == 0
        assert torch.equal(batch(cache.pictures(other), np.arange(6))[0], direct(other))


def test_a_disk_that_is_full_is_said_at_once_and_one_that_becomes_full_when_it_matters(tmp_path, monkeypatch, settled):
    table = make(tmp_path / "a", 6)
    with monkeypatch.context() as patch, pytest.raises(UserError, match=r"10 kB are needed and 5 kB are free"):
        patch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(9000, 4000, 5000))
        opened([table], tmp_path / "cache")
    original, written = os.pwrite, []

    def pwrite(*given):
        if len(written) == 4:
            raise OSError(28, "No space left on device")
        written.append(given)
        return original(*given)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(module.Build, "_begin", lambda build: setattr(build, "_begun", True))  # seen when it is over
    with opened([table], tmp_path / "cache", threads=1) as cache:
        feed = feed_of(table, cache)
        assert torch.equal(batch(feed.cached, np.arange(4))[0], direct(table)[:4])
        for again in (lambda: batch(feed.cached, np.arange(6)), cache.finish):
            with pytest.raises(UserError, match=r"cache in .*: the disk is full.*--cache none"):
                again()
    assert lines(tmp_path / "cache") == 4


def test_pictures_that_another_process_decodes_are_used_as_it_goes(tmp_path, gate, settled, monkeypatch):
    monkeypatch.setattr(module, "COMMIT_SECONDS", 0.02)
    table, told = make(tmp_path / "a", 12), Lines()
    other = table.take(np.arange(6))
    gate.close("5.jpg")
    with opened([other], tmp_path / "cache") as first:  # holds the right to write
        batch(feed_of(other, first).cached, np.arange(5))
        with opened([table], tmp_path / "cache", tell=told) as second, ThreadPoolExecutor(1) as pool:
            assert "waiting for another process" in told[-1]
            pictures = feed_of(table, second).cached
            assert torch.equal(batch(pictures, np.arange(5))[0], direct(table)[:5])
            rest = pool.submit(batch, pictures, np.arange(12))
            time.sleep(0.1)
            assert not rest.done()
            gate.open()
            assert torch.equal(rest.result(30)[0], direct(table))
    assert sorted(gate.names) == sorted(table.items)


def test_waiting_for_another_process_can_be_left(tmp_path):
    table = make(tmp_path / "a", 3)
    with Pool(tmp_path / "cache", SIZE, upright=True).locked():
        cache = opened([table], tmp_path / "cache")
        began = time.monotonic()
        cache.close()
        assert time.monotonic() - began < 5
        with pytest.raises(RuntimeError, match="closed"):
            batch(cache.pictures(table), np.array([0]))


def background(folder, names, cache):
    """What another process does until it is killed."""
    module.COMMIT_SECONDS, module.RECENT = 0.02, 0
    original = module.decode_bytes

    def slow(*given, **named):
        time.sleep(0.01)
        return original(*given, **named)

    module.decode_bytes = slow
    table = table_of(folder, names)
    with open_cache([table], SIZE, folder=cache, threads=2, background=True) as opened:
        for _ in Feed(table, SIZE, cache=opened).in_order(5):
            pass


def test_killed_at_any_moment_it_is_finished_by_running_it_again(tmp_path, decoded, settled):
    table, rng, landed = make(tmp_path / "a", 80), np.random.default_rng(3), 0
    for _ in range(6):
        process = FORK.Process(target=background, args=(tmp_path / "a", table.items, tmp_path / "cache"))
        before = lines(tmp_path / "cache")
        process.start()
        until = time.monotonic() + 10
        while process.is_alive() and time.monotonic() < until and lines(tmp_path / "cache") == before:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        process.join()
        landed += process.exitcode == -9
        assert lines(tmp_path / "cache") > before or before >= 80
    assert landed >= 3
    done = lines(tmp_path / "cache")
    with opened([table], tmp_path / "cache") as cache:
        assert torch.equal(batch(feed_of(table, cache).cached, np.arange(80))[0], direct(table))
    assert len(decoded) <= 80 - done + 6


@pytest.mark.parametrize("leaves", ["interrupt", "end"])
def test_a_program_that_ends_does_not_hang_on_decoding(tmp_path, leaves):
    make(tmp_path / "a", 40)
    program = """if True:
        import sys, time
        import numpy as np
        from pathlib import Path
        from spml.data import cache_build
        from spml.data.cache import open_cache
        from spml.data.feed import Feed
        from tests.data.test_cache import table_of
        original, done = cache_build.decode_bytes, []
        def slow(*given, **named):
            done.append(given)
            time.sleep(0.1 if len(done) <= 4 else 1)
            return original(*given, **named)
        cache_build.decode_bytes = slow
        table = table_of(Path("a").absolute(), [f"{i}.jpg" for i in range(40)])
        cache = open_cache([table], 24, folder=Path("cache"), threads=2, background=True)
        for x, rows in Feed(table, 24, cache=cache).in_order(3):
            print("batch", flush=True)
            if sys.argv[1] == "end":
                break"""
    here = str(Path(__file__).parents[2])
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    command = [sys.executable, "-c", program, leaves]
    with subprocess.Popen(command, cwd=tmp_path, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"batch\n"
        began = time.monotonic()
        if leaves == "interrupt":
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert time.monotonic() - began < 8  # all of it would take 18 seconds
    assert (b"KeyboardInterrupt" in said) == (leaves == "interrupt")
    assert process.returncode == {"interrupt": -signal.SIGINT, "end": 0}[leaves]
    assert 3 <= lines(tmp_path / "cache") < 40  # what was done counts


def test_what_is_not_needed_soon_waits_until_it_is_asked_for(tmp_path, gate, monkeypatch):
    monkeypatch.setattr(module, "RESTLESS", 0)  # all threads rest
    table = make(tmp_path / "a", 12)
    with opened([table], tmp_path / "cache", threads=3, first=[(table, [4, 5])]) as cache:
        feed = feed_of(table, cache)
        assert torch.equal(batch(feed.cached, np.array([4, 5]))[0], direct(table)[[4, 5]])
        time.sleep(3 * module.TICK)
        assert {Path(table.items[row]).name for row in (4, 5)} == set(gate.names)
        assert torch.equal(batch(feed.cached, np.array([9]))[0], direct(table)[[9]])
        assert len(gate.names) == 3
        cache.finish()
        assert len(gate.names) == 12
