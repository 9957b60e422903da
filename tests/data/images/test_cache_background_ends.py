"""Background decoding that is interrupted, or that runs at the same time in other processes."""

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from spml.data.images import build as module
from spml.data.images.store import Pool
from spml.errors import UserError
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


def test_after_an_early_close_only_the_remaining_pictures_are_decoded(tmp_path, gate, settled):
    table = make(tmp_path / "a", 20)
    gate.close("11.jpg")
    with opened([table], tmp_path / "cache", threads=1) as cache:
        feed = feed_of(table, cache)
        batch(feed.cached, np.arange(11))
        closing = threading.Timer(0.1, gate.open)  # the picture in decoding is finished first
        closing.start()
        cache.close()
        assert not [t for t in threading.enumerate() if t.name in ("cache", "decode")]
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


def test_a_full_disk_is_reported_at_once(tmp_path, small_disk, settled):
    with pytest.raises(UserError, match=r"10 kB are needed and 5 kB are free"):
        opened([make(tmp_path / "a", 6)], tmp_path / "cache")


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
            assert "waiting for another process" in reported[-1]
            pictures = feed_of(table, second).cached
            assert torch.equal(batch(pictures, np.arange(5))[0], direct(table)[:5])
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
        began = time.monotonic()
        if leaves == "interrupt":
            process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert time.monotonic() - began < 8  # decoding everything would take 18 seconds
    assert (b"KeyboardInterrupt" in message) == (leaves == "interrupt")
    assert process.returncode == {"interrupt": -signal.SIGINT, "end": 0}[leaves]
    assert 3 <= lines(tmp_path / "cache") < 40  # finished pictures are kept
