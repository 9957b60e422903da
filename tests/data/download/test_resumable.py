"""Downloads from a server with faults: breaks, refusals, other versions, damage, a full disk."""

import hashlib
import shutil
import socket

import numpy as np
import pytest

from spml.data.download import resumable as module
from spml.data.download.remote import Remote
from spml.data.download.resumable import download, left, require_space
from spml.errors import DataError, UserError
from tests.data.download.server import serving

CONTENT = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def files(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        yield server


@pytest.fixture
def remote(files, monkeypatch):
    files.content = CONTENT
    monkeypatch.setattr("spml.data.download.request.CHUNK", 10_000)

    def make(algorithm="sha256", addresses=None, content=CONTENT):
        digest = f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
        return Remote("file.bin", addresses or (files.address(),), len(content), digest)

    return make


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_file_is_downloaded_once(files, remote, tmp_path, algorithm):
    progress = []
    path = download(
        remote(algorithm), tmp_path / "new", advance=lambda *what: progress.append(what)
    )
    assert path.read_bytes() == CONTENT and names(tmp_path / "new") == ["file.bin"]
    assert (
        progress[-1] == ("checking file.bin", 300_000, 300_000)
        and ("file.bin", 300_000, 300_000) in progress
    )
    download(remote(algorithm), tmp_path / "new")
    assert len(files.seen) == 1


def test_a_cut_connection_is_resumed(files, remote, tmp_path):
    files.faults = [("cut", 120_000), ("cut", 50_000)]
    assert download(remote(), tmp_path, wait=0).read_bytes() == CONTENT
    assert files.seen == [(None, None), ("bytes=120000-", '"one"'), ("bytes=170000-", '"one"')]


def test_an_interrupted_download_is_resumed_in_a_later_call(files, remote, tmp_path):
    def stop(what, done, total):
        if done >= 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(remote(), tmp_path, advance=stop)
    assert names(tmp_path) == ["file.bin.part", "file.bin.part.etag"]
    have = (tmp_path / "file.bin.part").stat().st_size
    assert left(remote(), tmp_path) == 300_000 - have < 300_000
    assert download(remote(), tmp_path).read_bytes() == CONTENT
    assert files.seen[-1] == (f"bytes={have}-", '"one"') and names(tmp_path) == ["file.bin"]
    assert left(remote(), tmp_path) == 0


def test_a_server_without_ranges_restarts_the_download(files, remote, tmp_path):
    files.ranges, files.faults = False, [("cut", 120_000)]
    assert download(remote(), tmp_path, wait=0).read_bytes() == CONTENT
    assert len(files.seen) == 2


def test_a_part_of_another_version_is_not_resumed(files, remote, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    (tmp_path / "file.bin.part.etag").write_text('"older"')
    assert download(remote(), tmp_path).read_bytes() == CONTENT


def test_without_a_version_tag_the_checksum_decides(files, remote, tmp_path):
    files.etag = None
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    assert download(remote(), tmp_path).read_bytes() == CONTENT
    assert files.seen == [("bytes=1000-", None)]


@pytest.mark.parametrize("mark", [None, 'W/"one"'])
def test_a_weak_version_tag_is_not_stored(files, remote, tmp_path, mark):
    files.etag, files.faults = mark, [("cut", 1000)]
    (tmp_path / "file.bin.part.etag").write_text('"older"')
    assert download(remote(), tmp_path, wait=0).read_bytes() == CONTENT
    assert files.seen == [(None, None), ("bytes=1000-", None)] and names(tmp_path) == ["file.bin"]
    assert download(remote(), tmp_path / "again").read_bytes() == CONTENT


@pytest.mark.parametrize("length", [300_000, 300_001])
def test_partial_files_as_long_as_the_file_or_longer(files, remote, tmp_path, length):
    (tmp_path / "file.bin.part").write_bytes(CONTENT if length == len(CONTENT) else b"x" * length)
    assert download(remote(), tmp_path, wait=0).read_bytes() == CONTENT
    assert len(files.seen) == (0 if length == 300_000 else 2)


def test_a_wrong_checksum_deletes_the_download(files, remote, tmp_path):
    files.content = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with pytest.raises(
        DataError, match=r"file.bin: sha256 \w{64}, \w{64} expected; the download was deleted"
    ):
        download(remote(), tmp_path)
    assert names(tmp_path) == []


def test_a_wrong_file_of_the_user_is_not_deleted(remote, tmp_path):
    (tmp_path / "file.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"4 bytes, 300,000 expected; remove it"):
        download(remote(), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == b"mine"


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_refusal_is_not_retried(files, remote, tmp_path, code):
    files.faults = [code] * 9
    with pytest.raises(
        DataError, match=rf"could not be downloaded .*HTTP {code}.*put the file into"
    ):
        download(remote(), tmp_path)
    assert len(files.seen) == 1


def test_another_address_is_tried(files, remote, tmp_path):
    files.faults = [404]
    download(remote(addresses=(files.address("gone"), files.address())), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_temporary_errors_are_retried_with_growing_delays(files, remote, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    files.faults = [503, 429, 500]
    download(remote(), tmp_path, wait=2)
    assert slept == [2, 4, 8]


def test_attempts_end_and_received_bytes_are_kept(files, remote, tmp_path):
    files.faults = [("cut", 50_000), *[502] * 9]
    with pytest.raises(
        DataError, match=r"HTTP 502.*50,000 of 300,000 bytes are kept: run again to resume"
    ):
        download(remote(), tmp_path, attempts=3, wait=0)
    assert len(files.seen) == 3
    files.faults = [502] * 9
    with pytest.raises(DataError, match="HTTP 502"):
        download(remote(), tmp_path / "new", attempts=3, wait=0)
    assert len(files.seen) == 6
    files.faults = []
    assert download(remote(), tmp_path).read_bytes() == CONTENT


def test_an_unreachable_server_is_reported(remote, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
    with pytest.raises(DataError, match=r"refused"):
        download(remote(addresses=(address,)), tmp_path, attempts=2, wait=0)


@pytest.mark.parametrize(
    ("content", "faults", "message"),
    [
        (b"<html>sign in</html>", [], "offers 20 bytes, 300,000 expected"),
        (CONTENT + b"more", ["unsized"], "sends more than the 300,000 bytes expected"),
        (CONTENT, [("cut", 1000), "shifted"], "another part than was asked for"),
    ],
)
def test_unexpected_answers_are_refused(files, remote, tmp_path, content, faults, message):
    files.content, files.faults = content, faults
    with pytest.raises(DataError, match=message):
        download(remote(), tmp_path, wait=0)
    assert not (tmp_path / "file.bin").exists()


def test_a_second_download_of_the_same_file_is_refused(remote, tmp_path):
    with (
        module._locked(tmp_path / "file.bin.part"),
        pytest.raises(UserError, match="another process"),
    ):
        download(remote(), tmp_path)


def test_too_little_disk(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=3_000_000_000))
    require_space(tmp_path / "not" / "yet", 3_000_000_000)
    with pytest.raises(UserError, match=r"3.0 GB free, 3.1 GB needed"):
        require_space(tmp_path / "not" / "yet", 3_100_000_000)
