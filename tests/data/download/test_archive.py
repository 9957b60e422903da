"""Unpacking: nothing leaves the folder, and an interrupted call leaves no partial state."""

import io
import shutil
import tarfile
import zipfile

import pytest

from spml.data.download.archive import marker, unpack
from spml.errors import DataError
from tests.data.conftest import refused

KINDS = pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
FILES = {"top.txt": b"top", "data/a/1.txt": b"one", "data/b.txt": b"two" * 1000}


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
