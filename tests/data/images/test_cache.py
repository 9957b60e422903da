"""The cache of decoded pictures: what it stores, and damage, disk errors and killed builds."""

import os
import random
import shutil
import time

import numpy as np
import pytest
import torch

from spml.data.images import build as module
from spml.data.images.cache import open_cache
from spml.data.images.loader import Feed
from spml.data.images.store import format_bytes, stamp_of
from spml.errors import DataError, UserError
from tests.data.conftest import refused
from tests.data.images.caching import (
    FORK,
    SIZE,
    Lines,
    age,
    direct,
    failing_writes,
    file_in,
    lines,
    make,
    pixels,
    table_of,
)
from tests.data.images.test_decode import scene


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


@pytest.mark.parametrize("seconds", [0, 5000])
def test_a_changed_file_gives_its_new_pixels(tmp_path, settled, seconds):
    table = make(tmp_path / "a", 4, kind="bmp")  # all have the same length
    before, path = pixels(table, tmp_path / "cache"), tmp_path / "a" / "1.bmp"
    length = path.stat().st_size
    scene(40, 30, seed=77).save(path)
    age(path, seconds)  # a copy may keep an older date
    assert path.stat().st_size == length
    after = pixels(table, tmp_path / "cache")
    assert torch.equal(after, direct(table)) and not torch.equal(after[1], before[1])


def test_a_file_that_has_just_changed_is_not_trusted_by_its_times(tmp_path, decoded, monkeypatch):
    table = make(tmp_path / "a", 3, kind="bmp")
    pixels(table, tmp_path / "cache")
    stamp = stamp_of(str(tmp_path / "a" / "1.bmp"))
    scene(40, 30, seed=77).save(tmp_path / "a" / "1.bmp")
    for place in ("store", "build"):  # as with a clock too coarse to show the change
        monkeypatch.setattr(f"spml.data.images.{place}.stamp_of", lambda path: stamp)
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))
    assert sorted(decoded) == ["0.bmp", "1.bmp", "1.bmp", "2.bmp"]  # the others are only read


def test_the_size_is_printed_before_anything_is_decoded(tmp_path, settled):
    table, lines = make(tmp_path / "a", 5), Lines()
    open_cache(
        [table.take([0, 1]), table.take([1, 2])], SIZE, folder=tmp_path / "cache", progress=lines
    )
    (line,) = lines
    assert line.startswith(f"cache: 3 pictures x 2 kB = 5 kB in {tmp_path / 'cache'}")
    assert lines.begun == 3
    for rest, left in ((", 2 to decode", 2), (file_in(tmp_path / "cache", "index").parent.name, 0)):
        lines = Lines()
        open_cache([table], SIZE, folder=tmp_path / "cache", progress=lines)
        assert lines[0].endswith(rest) and lines.begun == left
    assert format_bytes(448 * 448 * 3) == "602 kB"
    assert format_bytes(11_540 * 448 * 448 * 3) == "6.9 GB"


def test_too_little_disk_is_reported_first(tmp_path, decoded, small_disk):
    with pytest.raises(UserError, match=r"5 kB are needed and 5 kB are.*--cache none"):
        open_cache([make(tmp_path / "a", 3)], SIZE, folder=tmp_path / "cache")
    assert not decoded


def test_too_little_memory_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("spml.data.images.cache.free_memory", lambda device: 6000)
    message = r"5 kB do not fit well in the 6 kB that are free; give --cache disk"
    with pytest.raises(UserError, match=message):
        pixels(make(tmp_path / "a", 3), tmp_path / "cache", "memory")


def build(folder, names, cache, background, gate=None):
    """Build the cache in another process."""
    module.COMMIT_SECONDS, module.RECENT = 0.02, 0
    original = module.decode_bytes

    def noted(data, path, *args):
        with (folder / "decoded").open("a") as file:
            file.write(f"{path.name}\n")
        time.sleep(0.01)  # long enough to be killed during it
        return original(data, path, *args)

    module.decode_bytes = noted
    if gate is not None:
        gate.wait()
    table = table_of(folder, names)
    options = {"folder": cache, "threads": 2, "background": background}
    with open_cache([table], SIZE, **options) as opened:
        for _ in Feed(table, SIZE, cache=opened).in_order(5):
            pass


def test_two_processes_at_once_end_with_one_correct_cache(tmp_path, settled):
    table = make(tmp_path / "a", 60)
    gate = FORK.Barrier(3)
    parts = [table.items[:50], table.items[::-1][:50], table.items]
    processes = [
        FORK.Process(target=build, args=(tmp_path / "a", part, tmp_path / "cache", False, gate))
        for part in parts
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    once = (tmp_path / "a" / "decoded").read_text().split()
    assert sorted(once) == sorted(table.items)  # none was decoded twice
    assert file_in(tmp_path / "cache", "pixels").stat().st_size == 60 * 3 * SIZE * SIZE
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))


@pytest.mark.parametrize("background", [False, True])
def test_a_killed_cache_build_is_completed_by_the_next(tmp_path, decoded, settled, background):
    table, rng = make(tmp_path / "a", 80), random.Random(5)
    cache, started, landed = tmp_path / "cache", tmp_path / "a" / "decoded", 0
    for i in range(8):
        arguments = (tmp_path / "a", table.items, cache, background)
        process = FORK.Process(target=build, args=arguments)
        process.start()
        until = time.monotonic() + 10
        while process.is_alive() and time.monotonic() < until:
            if lines(cache) if i == 0 else started.exists():
                break
            time.sleep(0.001)
        before = lines(cache)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.join()
        landed += process.exitcode == -9
        started.unlink(missing_ok=True)
        assert lines(cache) >= before > 0  # finished pictures stay
    assert landed >= 3
    assert torch.equal(pixels(table, cache), direct(table))
    assert len(decoded) < len(table)
    assert file_in(cache, "pixels").stat().st_size <= (len(table) + 8) * 3 * SIZE * SIZE


@pytest.mark.parametrize(("code", "message"), [(28, "the disk is full"), (5, "Input/output error")])
def test_a_disk_error_is_one_line_and_finished_pictures_are_kept(
    tmp_path, decoded, settled, code, message
):
    table, error = make(tmp_path / "a", 6), OSError(code, os.strerror(code))
    reported = pytest.raises(UserError, match=rf"cache in .*: {message}.*--cache none")
    with failing_writes(error, after=4), reported:
        open_cache([table], SIZE, folder=tmp_path / "cache", threads=1)
    decoded.clear()
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))
    assert sorted(decoded) == ["4.jpg", "5.jpg"]


def test_an_unwritable_folder_is_a_one_line_error(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"cache in .*Not a directory; give --cache-dir"):
        open_cache([make(tmp_path / "a", 1)], SIZE, folder=tmp_path / "file")


def test_unreadable_pictures_give_one_line_naming_the_first(tmp_path, decoded, settled):
    table = make(tmp_path / "a", 30)
    for i in range(3, 28):
        (tmp_path / "a" / f"{i}.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError) as caught:
        pixels(table, tmp_path / "cache")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/a/list.csv, line 5: {tmp_path}/a/3.jpg: not a picture")
    assert message.endswith("; and 24 more; `spml check` lists them all")
    assert "\n" not in message and "4.jpg" not in message
    good = table.take([0, 1, 2, 28, 29])
    decoded.clear()
    # The good ones are kept.
    assert torch.equal(pixels(good, tmp_path / "cache"), direct(good)) and not decoded
    (tmp_path / "a" / "0.jpg").unlink()
    with refused(r"^\S+list.csv, line 2: .*0.jpg: cannot be read \(No such file"):
        pixels(good, tmp_path / "cache")


@pytest.mark.parametrize("damage", ["cut", "cut within", "gone", "emptied"])
def test_truncated_pixels_are_decoded_again(tmp_path, decoded, settled, damage):
    table, slot = make(tmp_path / "a", 6), 3 * SIZE * SIZE
    pixels(table, tmp_path / "cache")
    path = file_in(tmp_path / "cache", "pixels")
    if damage == "gone":
        path.unlink()
    else:
        lengths = {"cut": 4 * slot, "cut within": 4 * slot + slot // 2, "emptied": 0}
        os.truncate(path, lengths[damage])
    decoded.clear()
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))
    assert len(decoded) == (2 if damage.startswith("cut") else 6)


def test_reused_slots_do_not_return_their_old_pictures(tmp_path, settled):
    old, new = make(tmp_path / "a", 4), make(tmp_path / "b", 4, start=50)
    pixels(old, tmp_path / "cache")
    os.truncate(file_in(tmp_path / "cache", "pixels"), 0)
    pixels(new, tmp_path / "cache")
    lines = Lines()
    assert torch.equal(pixels(old, tmp_path / "cache", progress=lines), direct(old))
    assert lines[0].endswith("= 7 kB in " + str(file_in(tmp_path / "cache", "pixels").parent))
    assert len(lines) == 1
    assert torch.equal(pixels(new, tmp_path / "cache"), direct(new))


@pytest.mark.parametrize("mode", ["disk", "memory", "device"])
def test_damaged_pixels_are_never_returned_and_are_repaired(tmp_path, settled, mode):
    table = make(tmp_path / "a", 6)
    pixels(table, tmp_path / "cache")
    path = file_in(tmp_path / "cache", "pixels")
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    lines = Lines()
    assert torch.equal(pixels(table, tmp_path / "cache", mode, lines), direct(table))
    assert sum("jpg is damaged in the cache and is decoded again" in line for line in lines) == 1
    assert path.read_bytes() == whole


def test_a_damaged_picture_that_is_missing_is_reported_as_when_decoding(tmp_path, settled):
    table = make(tmp_path / "a", 3)
    feed = Feed(table, SIZE, cache=open_cache([table], SIZE, folder=tmp_path / "cache", threads=1))
    path = file_in(tmp_path / "cache", "pixels")
    with path.open("r+b") as file:
        file.write(bytes(100))
    (tmp_path / "a" / "0.jpg").unlink()
    with refused(r"list.csv, line 2: .*0.jpg: cannot be read"):
        list(feed.in_order(2))
    reported = {}
    batches = list(feed.in_order(2, on_error=reported.__setitem__))
    assert list(reported) == [0] and [rows.tolist() for _, rows in batches] == [[1], [2]]
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


def test_an_index_with_swapped_slots_is_not_trusted(tmp_path, settled):
    table = make(tmp_path / "a", 2)
    pixels(table, tmp_path / "cache")
    path = file_in(tmp_path / "cache", "index")
    lines = path.read_text().splitlines()
    slots = [line.rsplit(", ", 2) for line in lines]
    swapped = zip(slots, slots[::-1], strict=True)
    path.write_text("".join(f"{a}, {b}, {c}\n" for (a, _, c), (_, b, _) in swapped))
    assert path.read_text().splitlines() != lines
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))


def test_a_complete_read_only_cache_is_sufficient(tmp_path, settled, monkeypatch):
    table = make(tmp_path / "a", 3)
    pixels(table, tmp_path / "cache")

    def refused(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spml.data.images.store.Pool.locked", refused)
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))


@pytest.mark.parametrize("damage", ["cut", "emptied", "gone", "replaced", "overwritten"])
def test_a_cache_that_is_attacked_during_a_run_gives_the_same_pictures(tmp_path, settled, damage):
    table, lines = make(tmp_path / "a", 6), Lines()
    cache = open_cache([table], SIZE, folder=tmp_path / "cache", progress=lines)
    feed, path = Feed(table, SIZE, cache=cache), file_in(tmp_path / "cache", "pixels")
    expected = direct(table)
    assert torch.equal(torch.cat([x for x, _ in feed.in_order(2)]), expected)
    if damage in ("gone", "replaced"):
        path.unlink()
    if damage in ("replaced", "overwritten"):
        path.write_bytes(bytes(6 * 3 * SIZE * SIZE))
    if damage in ("cut", "emptied"):
        os.truncate(path, 3 * SIZE * SIZE * (damage == "cut"))
    for _ in range(2):
        assert torch.equal(torch.cat([x for x, _ in feed.in_order(2)]), expected)
    about = [line for line in lines if "damaged" in line or "others" in line]
    assert len(about) == (0 if damage in ("gone", "replaced") else 2)
