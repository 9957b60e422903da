import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from spml.data import LabelTable
from spml.data import cache_build as module
from spml.data.cache import open_cache
from spml.data.cache_pictures import free_memory, in_words
from spml.data.feed import Feed
from spml.data.pictures import decode
from spml.data.places import Places
from spml.errors import DataError, UserError
from tests.data.test_pictures import scene

SIZE = 24
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["spml.data.cache"])  # so that a process starts without importing torch anew


class Lines(list):
    """Keeps what is told."""

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
    """Make a file look older: what has just changed is not trusted by its times."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - seconds * 10**9))


def table_of(folder, names):
    places = Places.of(folder / "list.csv", "line", np.arange(2, 2 + len(names)))
    return LabelTable(names, ["one"], np.ones((len(names), 1), np.int8), root=folder, places=places)


@pytest.fixture
def settled(monkeypatch):
    """As if the pictures had been there for long; the system's own time of change cannot be set back."""
    monkeypatch.setattr(module, "RECENT", 0)


@pytest.fixture
def decoded(monkeypatch):
    """Names of the files that are decoded."""
    names = []

    def decode_bytes(data, path, *given, **named):
        names.append(path.name)
        return original(data, path, *given, **named)

    original = module.decode_bytes
    monkeypatch.setattr(module, "decode_bytes", decode_bytes)
    return names


def pixels(table, folder, mode="disk", tell=None):
    feed = Feed(table, SIZE, cache=open_cache([table], SIZE, mode, folder=folder, tell=tell))
    return torch.cat([x for x, _ in feed.in_order(7)])


def direct(table):
    return torch.stack([decode(table.root / item, SIZE) for item in table.items])


def file_in(folder, name):
    (path,) = folder.glob(f"*/{name}")
    return path


def test_each_picture_is_decoded_once_for_all_tables_and_runs(tmp_path, decoded, settled):
    table = make(tmp_path / "a", 12)
    for part in (table.take(np.arange(8)), table.take(np.arange(4, 12)), table):
        assert torch.equal(pixels(part, tmp_path / "cache"), direct(part))
    assert sorted(decoded) == sorted(table.items)
    assert file_in(tmp_path / "cache", "pixels").stat().st_size == 12 * 3 * SIZE * SIZE


def test_files_of_the_same_bytes_share_their_pixels(tmp_path, decoded, settled):
    table = make(tmp_path / "a", 5)
    pixels(table, tmp_path / "cache")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    moved = table_of(tmp_path / "b", table.items)
    assert torch.equal(pixels(moved, tmp_path / "cache"), direct(table))
    assert len(decoded) == 5


def test_another_size_or_orientation_is_another_pool(tmp_path):
    table = make(tmp_path / "a", 2)
    for size, upright in ((8, True), (9, True), (8, False)):
        open_cache([table], size, folder=tmp_path / "cache", upright=upright)
    assert len(list((tmp_path / "cache").iterdir())) == 3


@pytest.mark.parametrize("seconds", [0, 5000])
def test_a_changed_file_gives_its_new_pixels(tmp_path, settled, seconds):
    table = make(tmp_path / "a", 4, kind="bmp")  # all of one length
    before, path = pixels(table, tmp_path / "cache"), tmp_path / "a" / "1.bmp"
    length = path.stat().st_size
    scene(40, 30, seed=77).save(path)
    age(path, seconds)  # a copy may bring an older date along
    assert path.stat().st_size == length
    after = pixels(table, tmp_path / "cache")
    assert torch.equal(after, direct(table)) and not torch.equal(after[1], before[1])


def test_a_file_that_has_just_changed_is_not_trusted_by_its_times(tmp_path, decoded, monkeypatch):
    table = make(tmp_path / "a", 3, kind="bmp")
    pixels(table, tmp_path / "cache")
    stamp = module._stamp(str(tmp_path / "a" / "1.bmp"))
    scene(40, 30, seed=77).save(tmp_path / "a" / "1.bmp")
    monkeypatch.setattr(module, "_stamp", lambda path: stamp)  # a clock too coarse to show it
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))
    assert sorted(decoded) == ["0.bmp", "1.bmp", "1.bmp", "2.bmp"]  # the others are only read


def test_the_size_is_told_before_anything_is_decoded(tmp_path, settled):
    table, lines = make(tmp_path / "a", 5), Lines()
    open_cache([table.take([0, 1]), table.take([1, 2])], SIZE, folder=tmp_path / "cache", tell=lines)
    (line,) = lines
    assert line.startswith(f"cache: 3 pictures x 2 kB = 5 kB in {tmp_path / 'cache'}") and lines.begun == 3
    lines = Lines()
    open_cache([table], SIZE, folder=tmp_path / "cache", tell=lines)
    assert lines[0].endswith(", 2 to decode") and lines.begun == 2
    lines = Lines()
    open_cache([table], SIZE, folder=tmp_path / "cache", tell=lines)
    assert "to decode" not in lines[0] and lines.begun == 0
    assert in_words(448 * 448 * 3) == "602 kB" and in_words(11_540 * 448 * 448 * 3) == "6.9 GB"


def test_too_little_disk_or_memory_is_said_first(tmp_path, decoded, monkeypatch):
    table = make(tmp_path / "a", 3)
    with monkeypatch.context() as patch, pytest.raises(UserError, match=r"5 kB are needed and 5 kB are.*--cache none"):
        patch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(9000, 4000, 5000))
        open_cache([table], SIZE, folder=tmp_path / "cache")
    assert not decoded
    monkeypatch.setattr("spml.data.cache_pictures.free_memory", lambda device: 6000)
    with pytest.raises(UserError, match=r"5 kB do not fit well in the 6 kB that are free; give --cache disk"):
        pixels(table, tmp_path / "cache", "memory")


def test_free_memory_is_known_here():
    assert free_memory(torch.device("cpu")) > 2**20


@pytest.mark.parametrize(
    ("error", "said"), [(OSError(28, "No space left on device"), "the disk is full"), (OSError(5, "I/O error"), "I/O")]
)
def test_a_disk_that_fails_is_one_line_and_what_was_done_counts(tmp_path, decoded, monkeypatch, settled, error, said):
    table = make(tmp_path / "a", 6)
    original, written = os.pwrite, []

    def pwrite(*given):
        if len(written) == 4:
            raise error
        written.append(given)
        return original(*given)

    with monkeypatch.context() as patch, pytest.raises(UserError, match=rf"cache in .*: {said}.*--cache none"):
        patch.setattr(os, "pwrite", pwrite)
        open_cache([table], SIZE, folder=tmp_path / "cache", threads=1)
    decoded.clear()
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))
    assert sorted(decoded) == ["4.jpg", "5.jpg"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"cache in .*Not a directory; give --cache-dir"):
        open_cache([make(tmp_path / "a", 1)], SIZE, folder=tmp_path / "file")


def test_unreadable_pictures_are_one_line_that_names_the_first(tmp_path, decoded, settled):
    table = make(tmp_path / "a", 30)
    for i in range(3, 28):
        (tmp_path / "a" / f"{i}.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError) as caught:
        pixels(table, tmp_path / "cache")
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'a' / 'list.csv'}, line 5: {tmp_path / 'a' / '3.jpg'}: not a picture")
    assert said.endswith("; and 24 more; `spml check` lists them all") and "\n" not in said and "4.jpg" not in said
    good = table.take([0, 1, 2, 28, 29])
    decoded.clear()
    assert torch.equal(pixels(good, tmp_path / "cache"), direct(good)) and not decoded  # the good ones are kept
    (tmp_path / "a" / "0.jpg").unlink()
    with pytest.raises(DataError, match=r"^\S+list.csv, line 2: .*0.jpg: cannot be read \(No such file"):
        pixels(good, tmp_path / "cache")


@pytest.mark.parametrize("damage", ["cut", "cut within", "gone", "emptied"])
def test_pixels_that_are_cut_short_are_decoded_again(tmp_path, decoded, settled, damage):
    table, slot = make(tmp_path / "a", 6), 3 * SIZE * SIZE
    pixels(table, tmp_path / "cache")
    path = file_in(tmp_path / "cache", "pixels")
    if damage == "gone":
        path.unlink()
    else:
        os.truncate(path, {"cut": 4 * slot, "cut within": 4 * slot + slot // 2, "emptied": 0}[damage])
    decoded.clear()
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))
    assert len(decoded) == (2 if damage.startswith("cut") else 6)


def test_slots_given_anew_do_not_belong_to_their_old_owners(tmp_path, settled):
    old, new = make(tmp_path / "a", 4), make(tmp_path / "b", 4, start=50)
    pixels(old, tmp_path / "cache")
    os.truncate(file_in(tmp_path / "cache", "pixels"), 0)
    pixels(new, tmp_path / "cache")
    lines = Lines()
    assert torch.equal(pixels(old, tmp_path / "cache", tell=lines), direct(old))
    assert lines[0].endswith("= 7 kB in " + str(file_in(tmp_path / "cache", "pixels").parent)) and len(lines) == 1
    assert torch.equal(pixels(new, tmp_path / "cache"), direct(new))


@pytest.mark.parametrize("mode", ["disk", "memory", "device"])
def test_damaged_pixels_are_never_given_and_are_mended(tmp_path, settled, mode):
    table = make(tmp_path / "a", 6)
    pixels(table, tmp_path / "cache")
    path = file_in(tmp_path / "cache", "pixels")
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    lines = Lines()
    assert torch.equal(pixels(table, tmp_path / "cache", mode, lines), direct(table))
    assert sum("jpg is damaged in the cache and is decoded again" in line for line in lines) == 1
    assert path.read_bytes() == whole


def test_a_damaged_picture_that_is_gone_is_told_as_when_decoding(tmp_path, settled):
    table = make(tmp_path / "a", 3)
    feed = Feed(table, SIZE, cache=open_cache([table], SIZE, folder=tmp_path / "cache", threads=1))
    path = file_in(tmp_path / "cache", "pixels")
    with path.open("r+b") as file:
        file.write(bytes(100))
    (tmp_path / "a" / "0.jpg").unlink()
    with pytest.raises(DataError, match=r"list.csv, line 2: .*0.jpg: cannot be read"):
        list(feed.in_order(2))
    told = {}
    batches = list(feed.in_order(2, on_error=told.__setitem__))
    assert list(told) == [0] and [rows.tolist() for _, rows in batches] == [[1], [2]]
    assert torch.equal(batches[0][0], direct(table.take([1, 2]))[:1])


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_index_loses_pictures_but_gives_no_wrong_ones(tmp_path, decoded, settled, seed):
    table, rng = make(tmp_path / "a", 8), random.Random(seed)
    pixels(table, tmp_path / "cache")
    path = file_in(tmp_path / "cache", "index")
    data = bytearray(path.read_bytes())
    if seed % 2:
        data = data[: rng.randrange(len(data))]
    else:
        for _ in range(5):
            data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))
    decoded.clear()
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table)) and not decoded


def test_an_index_with_slots_exchanged_is_not_believed(tmp_path, settled):
    table = make(tmp_path / "a", 2)
    pixels(table, tmp_path / "cache")
    path = file_in(tmp_path / "cache", "index")
    lines = path.read_text().splitlines()
    slots = [line.rsplit(", ", 2) for line in lines]
    path.write_text(
        "".join(", ".join([a, b, c]) + "\n" for (a, _, c), (_, b, _) in zip(slots, slots[::-1], strict=True))
    )
    assert path.read_text().splitlines() != lines
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))


def test_a_warm_cache_that_may_only_be_read_is_enough(tmp_path, settled, monkeypatch):
    table = make(tmp_path / "a", 3)
    pixels(table, tmp_path / "cache")

    def refused(*given, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spml.data.cache_pool.Pool.locked", refused)
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))


def build(folder, names, cache, gate=None, commit=0.02):
    """What another process does."""
    module.COMMIT_SECONDS, module.RECENT = commit, 0
    original = module.decode_bytes

    def noted(data, path, *given, **named):
        with (folder / "decoded").open("a") as file:
            file.write(f"{path.name}\n")
        time.sleep(0.01)  # long enough to be killed meanwhile
        return original(data, path, *given, **named)

    module.decode_bytes = noted
    if gate is not None:
        gate.wait()
    open_cache([table_of(folder, names)], SIZE, folder=cache, threads=2)


def test_two_processes_at_once_end_with_one_correct_cache(tmp_path, settled):
    table = make(tmp_path / "a", 60)
    gate = FORK.Barrier(3)
    parts = [table.items[:50], table.items[::-1][:50], table.items]
    processes = [FORK.Process(target=build, args=(tmp_path / "a", part, tmp_path / "cache", gate)) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted((tmp_path / "a" / "decoded").read_text().split()) == sorted(table.items)  # none of them twice
    assert file_in(tmp_path / "cache", "pixels").stat().st_size == 60 * 3 * SIZE * SIZE
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))


def test_killed_at_any_moment_it_is_finished_by_running_it_again(tmp_path, decoded, settled):
    table, rng = make(tmp_path / "a", 80), random.Random(5)
    cache, started, landed = tmp_path / "cache", tmp_path / "a" / "decoded", 0
    for i in range(10):
        process = FORK.Process(target=build, args=(tmp_path / "a", table.items, cache))
        process.start()
        until = time.monotonic() + 10
        while process.is_alive() and time.monotonic() < until and not (lines(cache) if i == 0 else started.exists()):
            time.sleep(0.001)
        before = lines(cache)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.join()
        landed += process.exitcode == -9
        started.unlink(missing_ok=True)
        assert lines(cache) >= before > 0  # what was done stays
    assert landed >= 3
    assert torch.equal(pixels(table, cache), direct(table))
    assert len(decoded) < len(table)
    assert file_in(cache, "pixels").stat().st_size <= (len(table) + 8) * 3 * SIZE * SIZE


def lines(cache):
    return sum(path.read_bytes().count(b"\n") for path in cache.glob("*/index"))


def test_training_keeps_its_threads(tmp_path):
    """torch.set_num_threads in a thread, before torch has computed anything, is for the whole process."""
    make(tmp_path / "a", 20)
    program = """if True:
        import sys, torch
        from pathlib import Path
        from spml.data.cache import open_cache
        from spml.data.feed import Feed
        from tests.data.test_cache import table_of
        table = table_of(Path("a").absolute(), [f"{i}.jpg" for i in range(20)])
        list(Feed(table, 24, cache=open_cache([table], 24, sys.argv[1], folder=Path("cache"))).in_order(4))
        print(torch.get_num_threads())"""
    here = str(Path(__file__).parents[2])
    given = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    for mode in ("none", "disk"):
        command = [sys.executable, "-c", program, mode]
        done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=True)
        assert done.stdout == "2\n"
