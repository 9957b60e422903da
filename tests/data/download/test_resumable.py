"""Downloads from a server with faults: breaks, refusals, other files, damage, a full disk."""

import hashlib
import shutil
import socket

import numpy as np
import pytest
from filelock import FileLock

from spml.data.download import resumable as module
from spml.data.download.remote import Archive
from spml.data.download.resumable import download, left, require_space
from spml.errors import UserError
from tests.data.conftest import refused
from tests.data.download.server import serving

CONTENT = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def files(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "CHUNK", 10_000)
    with serving() as server:
        server.content = CONTENT
        yield server


@pytest.fixture
def remote(files):
    def make(algorithm="sha256", addresses=None):
        digest = f"{algorithm}:{hashlib.new(algorithm, CONTENT).hexdigest()}"
        addresses = addresses or (files.address(),)
        return Archive("file.bin", addresses, len(CONTENT), digest, len(CONTENT))

    return make


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_file_is_downloaded_once(files, remote, tmp_path, algorithm):
    steps = []
    folder = tmp_path / "new"
    path = download(remote(algorithm), folder, advance=lambda *step: steps.append(step))
    assert path.read_bytes() == CONTENT and names(folder) == ["file.bin"]
    assert steps[-1] == ("checking file.bin", 300_000, 300_000)
    assert ("file.bin", 300_000, 300_000) in steps
    download(remote(algorithm), folder)
    assert len(files.seen) == 1


@pytest.mark.parametrize(
    ("ranges", "faults", "seen"),
    [
        (True, [("cut", 120_000), ("cut", 50_000)], [None, "bytes=120000-", "bytes=170000-"]),
        (False, [("cut", 120_000)], [None, "bytes=120000-"]),
        (True, ["unsized"], [None]),
    ],
    ids=["resumed", "restarted without ranges", "without a length"],
)
def test_a_cut_connection(files, remote, tmp_path, ranges, faults, seen):
    files.ranges, files.faults = ranges, faults
    assert download(remote(), tmp_path, wait=0).read_bytes() == CONTENT
    assert files.seen == seen


def test_an_interrupted_download_is_resumed_in_a_later_call(files, remote, tmp_path):
    def stop(what, done, total):
        if done >= 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(remote(), tmp_path, advance=stop)
    assert names(tmp_path) == ["file.bin.part"]
    have = (tmp_path / "file.bin.part").stat().st_size
    assert left(remote(), tmp_path) == 300_000 - have < 300_000
    assert download(remote(), tmp_path).read_bytes() == CONTENT
    assert files.seen[-1] == f"bytes={have}-" and names(tmp_path) == ["file.bin"]
    assert left(remote(), tmp_path) == 0


@pytest.mark.parametrize(
    ("part", "requests"), [(CONTENT, 0), (b"x" * 300_001, 1)], ids=["whole", "too long"]
)
def test_partial_files_as_long_as_the_file_or_longer(files, remote, tmp_path, part, requests):
    (tmp_path / "file.bin.part").write_bytes(part)
    assert download(remote(), tmp_path, wait=0).read_bytes() == CONTENT
    assert len(files.seen) == requests


def test_a_wrong_checksum_deletes_the_download(files, remote, tmp_path):
    files.content = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with refused(r"file.bin: sha256 \w{64}, \w{64} expected; the download was deleted"):
        download(remote(), tmp_path)
    assert names(tmp_path) == []


def test_a_wrong_file_of_the_user_is_not_deleted(remote, tmp_path):
    (tmp_path / "file.bin").write_bytes(b"mine")
    with refused(r"4 bytes, 300,000 expected; remove it"):
        download(remote(), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == b"mine"


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_refusal_is_not_retried(files, remote, tmp_path, code):
    files.faults = [code] * 9
    with refused(rf"could not be downloaded .*HTTP {code}.*put the file into"):
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
    with refused(r"HTTP 502.*50,000 of 300,000 bytes are kept: run again to resume"):
        download(remote(), tmp_path, attempts=3, wait=0)
    assert len(files.seen) == 3
    files.faults = []
    assert download(remote(), tmp_path).read_bytes() == CONTENT


def test_an_unreachable_server_is_reported(remote, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
    with refused(r"refused"):
        download(remote(addresses=(address,)), tmp_path, attempts=2, wait=0)


def test_another_page_is_refused(files, remote, tmp_path):
    files.content = b"<html>sign in</html>"
    with refused("offers 20 bytes, 300,000 expected"):
        download(remote(), tmp_path, wait=0)
    assert not (tmp_path / "file.bin").exists()


def test_a_second_download_of_the_same_file_is_refused(remote, tmp_path):
    with (
        FileLock(tmp_path / "file.bin.part.lock"),
        pytest.raises(UserError, match="another process"),
    ):
        download(remote(), tmp_path)


def test_too_little_disk(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=3_000_000_000))
    require_space(tmp_path / "not" / "yet", 3_000_000_000)
    with pytest.raises(UserError, match=r"3.0 GB free, 3.1 GB needed"):
        require_space(tmp_path / "not" / "yet", 3_100_000_000)
