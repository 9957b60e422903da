"""Damaged caches and pictures, and disk errors."""

import os
import random

import pytest
import torch

from spml.data.images.cache import open_cache
from spml.data.images.loader import Feed
from spml.errors import DataError, UserError
from tests.data.conftest import refused
from tests.data.images.caching import SIZE, Lines, direct, failing_writes, file_in, make, pixels


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "the disk is full"),
        (OSError(5, "I/O error"), "I/O"),
    ],
)
def test_a_disk_error_is_one_line_and_finished_pictures_are_kept(
    tmp_path, decoded, settled, error, message
):
    table = make(tmp_path / "a", 6)
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
    assert message.startswith(
        f"{tmp_path / 'a' / 'list.csv'}, line 5: {tmp_path / 'a' / '3.jpg'}: not a picture"
    )
    assert message.endswith("; and 24 more; `spml check` lists them all")
    assert "\n" not in message
    assert "4.jpg" not in message
    good = table.take([0, 1, 2, 28, 29])
    decoded.clear()
    assert (
        torch.equal(pixels(good, tmp_path / "cache"), direct(good)) and not decoded
    )  # the good ones are kept
    (tmp_path / "a" / "0.jpg").unlink()
    with pytest.raises(
        DataError, match=r"^\S+list.csv, line 2: .*0.jpg: cannot be read \(No such file"
    ):
        pixels(good, tmp_path / "cache")


@pytest.mark.parametrize("damage", ["cut", "cut within", "gone", "emptied"])
def test_truncated_pixels_are_decoded_again(tmp_path, decoded, settled, damage):
    table, slot = make(tmp_path / "a", 6), 3 * SIZE * SIZE
    pixels(table, tmp_path / "cache")
    path = file_in(tmp_path / "cache", "pixels")
    if damage == "gone":
        path.unlink()
    else:
        os.truncate(
            path, {"cut": 4 * slot, "cut within": 4 * slot + slot // 2, "emptied": 0}[damage]
        )
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
    path.write_text(
        "".join(
            ", ".join([a, b, c]) + "\n"
            for (a, _, c), (_, b, _) in zip(slots, slots[::-1], strict=True)
        )
    )
    assert path.read_text().splitlines() != lines
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))


def test_a_complete_read_only_cache_is_sufficient(tmp_path, settled, monkeypatch):
    table = make(tmp_path / "a", 3)
    pixels(table, tmp_path / "cache")

    def refused(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spml.data.images.store.Pool.locked", refused)
    assert torch.equal(pixels(table, tmp_path / "cache"), direct(table))
