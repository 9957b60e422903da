"""Downloads from a server with faults, and unpacking that never leaves its folder."""

import hashlib
import io
import shutil
import socket
import tarfile
import zipfile

import numpy as np
import pytest
from filelock import FileLock

from spml.data import download as module
from spml.data.benchmarks import Archive
from spml.data.download import download, left, marker, require_space, unpack
from spml.errors import DataError, UserError
from tests.data.conftest import refused
from tests.data.file_server import serving

CONTENT = np.random.default_rng(0).bytes(300_000)
KINDS = pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
FILES = {"top.txt": b"top", "data/a/1.txt": b"one", "data/b.txt": b"two" * 1000}


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


def pack(path, files, links=()):
    """Write an archive of the kind that its name ends in."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in files.items():
                packed.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for name, kind, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info)
    return path


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@KINDS
def test_unpacking(tmp_path, folder, kind):
    progress = []
    path = pack(tmp_path / f"x.{kind}", FILES)
    unpack(path, folder, 3006, advance=lambda *step: progress.append(step))
    assert contents(folder) == {**FILES, f".x.{kind}.unpacked": b""}
    assert progress[-1] == (f"unpacking x.{kind}", 3006, 3006)
    (folder / "top.txt").unlink()
    unpack(path, folder, 3006)  # a second call does nothing
    assert not (folder / "top.txt").exists()


@KINDS
@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x"])
def test_no_member_leaves_the_folder(tmp_path, folder, kind, name):
    path = pack(tmp_path / f"x.{kind}", {"good.txt": b"1", name: b"bad"})
    try:
        unpack(path, folder, 1)
    except DataError as error:
        assert "outside the destination" in str(error)
        assert list(folder.iterdir()) == []
    assert {item.name for item in tmp_path.iterdir()} == {"out", path.name}


@pytest.mark.parametrize(
    ("kind", "target", "message"),
    [
        (tarfile.SYMTYPE, "/etc/passwd", "link to an absolute path"),
        (tarfile.SYMTYPE, "../../x", "outside the destination"),
        (tarfile.CHRTYPE, "", "special file"),
        (tarfile.FIFOTYPE, "", "special file"),
    ],
)
def test_links_to_other_places_and_devices_are_refused(tmp_path, folder, kind, target, message):
    path = pack(tmp_path / "x.tar", {"good.txt": b"1"}, [("a", kind, target)])
    with refused(message):
        unpack(path, folder, 1)
    assert list(folder.iterdir()) == []


@KINDS
def test_damaged_archives(tmp_path, folder, kind):
    path = pack(tmp_path / f"x.{kind}", FILES)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 3])
    with refused("cannot be unpacked"):
        unpack(path, folder, 1)
    assert list(folder.iterdir()) == []


def test_a_killed_call_is_finished_by_another(tmp_path, folder, monkeypatch):
    path = pack(tmp_path / "x.tar", FILES)
    real, calls = shutil.move, []

    def stop(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "move", stop)
        unpack(path, folder, 1)
    assert not marker("x.tar", folder).exists()
    (folder / ".x.tar.unpacking" / "data").mkdir(parents=True)  # as a killed process would leave it
    (folder / ".x.tar.unpacking" / "data" / "half.txt").write_text("half")
    unpack(path, folder, 1)
    assert contents(folder) == {**FILES, ".x.tar.unpacked": b""}


def test_user_files_are_not_changed(tmp_path, folder):
    path = pack(tmp_path / "x.tar", FILES)
    (folder / "data").mkdir()
    (folder / "data" / "mine.txt").write_text("mine")
    (folder / "data" / "b.txt").write_text("mine")
    with refused(r"b.txt: not what the archive holds; move it away"):
        unpack(path, folder, 1)
    assert contents(folder) == {"data/mine.txt": b"mine", "data/b.txt": b"mine"}
    (folder / "data" / "b.txt").unlink()
    unpack(path, folder, 1)
    assert contents(folder) == {**FILES, ".x.tar.unpacked": b"", "data/mine.txt": b"mine"}
