"""Unpacking: unsafe archives are refused, and an interrupted call leaves no partial state."""

import io
import stat
import tarfile
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spml.data.download import archive as module
from spml.data.download.archive import marker, unpack
from spml.data.download.remote import Limits
from spml.errors import DataError

LIMITS = Limits(size=1_000_000, files=100)
FILES = {"top.txt": b"top", "data/a/1.txt": b"one", "data/b.txt": b"two" * 1000}


def make_tar(path, files, mode="w", extra=()):
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in extra:
            tar.addfile(info)
    return path


def make_zip(path, files, kinds=None):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (kinds or {}).get(name, 0) << 16
            packed.writestr(info, content)
    return path


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
def test_unpacking(tmp_path, folder, kind):
    path = tmp_path / f"x.{kind}"
    make_zip(path, FILES) if kind == "zip" else make_tar(
        path, FILES, "w:gz" if kind == "tgz" else "w"
    )
    progress = []
    unpack(path, folder, LIMITS, advance=lambda *what: progress.append(what))
    assert contents(folder) == {**FILES, f".x.{kind}.unpacked": b""}
    assert progress[-1] == (f"unpacking x.{kind}", 3006, 1_000_000)


def test_an_archive_just_within_the_limits_is_unpacked(tmp_path):
    path = make_zip(tmp_path / "x.zip", {"a": b"x" * 2000, "b": b"y" * 1000})
    unpack(path, tmp_path / "new" / "out", Limits(size=3000, files=2))
    assert set(contents(tmp_path / "new" / "out")) == {"a", "b", ".x.zip.unpacked"}


def test_a_second_call_does_nothing(tmp_path, folder):
    path = make_tar(tmp_path / "x.tar", FILES)
    unpack(path, folder, LIMITS)
    (folder / "top.txt").unlink()
    unpack(path, folder, LIMITS)
    assert not (folder / "top.txt").exists()


OUTSIDE = ["../x", "a/../../x", "/etc/x", "a/b/../../../x", "..", "//x"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_outside_the_folder_are_refused(tmp_path, folder, name, kind):
    make = {"tar": make_tar, "zip": make_zip}[kind]
    path = make(tmp_path / f"x.{kind}", {"good.txt": b"1", name: b"bad"})
    with pytest.raises(DataError, match="points outside the folder") as refused:
        unpack(path, folder, LIMITS)
    assert "download it again" not in str(refused.value)  # which would give the same
    assert contents(tmp_path) == {f"x.{kind}": path.read_bytes()}


@pytest.mark.parametrize(
    ("info", "what"),
    [
        (special("a", tarfile.SYMTYPE, "/etc/passwd"), "link"),
        (special("a", tarfile.LNKTYPE, "good.txt"), "link"),
        (special("a", tarfile.CHRTYPE), "special file"),
        (special("a", tarfile.BLKTYPE), "special file"),
        (special("a", tarfile.FIFOTYPE), "special file"),
    ],
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path, folder, info, what):
    path = make_tar(tmp_path / "x.tar", {"good.txt": b"1"}, extra=[info])
    with pytest.raises(DataError, match=f"'a' is a {what}; nothing was unpacked"):
        unpack(path, folder, LIMITS)
    assert contents(folder) == {}


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_in_a_zip_are_refused(tmp_path, folder, mode):
    path = make_zip(tmp_path / "x.zip", {"a": b"/etc/passwd"}, {"a": mode | 0o777})
    with pytest.raises(DataError, match=r"'a' is a (link|special file)"):
        unpack(path, folder, LIMITS)
    assert contents(folder) == {}


@pytest.mark.parametrize(
    ("files", "limits", "message"),
    [
        (
            {"a": bytes(10_000_000)},
            Limits(size=10**9, files=9),
            "more than [0-9,]+ bytes",
        ),  # by compression ratio
        ({"a": b"x" * 2000, "b": b"y" * 2000}, Limits(size=3000, files=9), "more than 3,000 bytes"),
        ({str(i): b"" for i in range(10)}, Limits(size=10**9, files=9), "more than 9 members"),
    ],
)
def test_decompression_bombs_are_refused(tmp_path, folder, files, limits, message):
    path = make_zip(tmp_path / "x.zip", files)
    with pytest.raises(DataError, match=message):
        unpack(path, folder, limits)
    assert contents(folder) == {} and not list(folder.iterdir())


def test_a_path_that_is_both_file_and_folder_is_refused(tmp_path, folder):
    for number, files in enumerate([{"a": b"1", "a/b": b"2"}, {"a/b": b"1", "a": b"2"}]):
        path = make_tar(tmp_path / f"{number}.tar", files)
        with pytest.raises(DataError, match="not unpacked"):
            unpack(path, folder, LIMITS)
    assert contents(folder) == {}


@pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
def test_damaged_archives(tmp_path, folder, kind):
    path = tmp_path / f"x.{kind}"
    make_zip(path, FILES) if kind == "zip" else make_tar(
        path, FILES, "w:gz" if kind == "tgz" else "w"
    )
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 3])
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(path, folder, LIMITS)
    assert list(folder.iterdir()) == []


def test_a_member_with_a_damaged_name_is_refused(tmp_path, folder):
    path = make_zip(tmp_path / "x.zip", {"one.jpg": b"1"})
    local, central, end = path.read_bytes().rpartition(b"one.jpg")
    path.write_bytes(local + b"\0" + central[1:] + end)
    with pytest.raises(DataError, match="nothing was unpacked"):
        unpack(path, folder, LIMITS)
    assert list(folder.iterdir()) == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_damage_gives_a_data_error_or_files_inside(tmp_path_factory, data):
    home = tmp_path_factory.mktemp("damage")
    kind = data.draw(st.sampled_from(["tar", "tgz", "zip"]))
    path = home / f"x.{kind}"
    make_zip(path, FILES) if kind == "zip" else make_tar(
        path, FILES, "w:gz" if kind == "tgz" else "w"
    )
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    (home / "out").mkdir()
    try:
        unpack(path, home / "out", LIMITS)
    except DataError:
        assert list((home / "out").iterdir()) == []
    assert {item.name for item in home.iterdir()} == {"out", path.name}


def test_a_killed_call_is_finished_by_another(tmp_path, folder, monkeypatch):
    path = make_tar(tmp_path / "x.tar", FILES)
    real, calls = module.shutil.move, []

    def stop(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(source, target)

    monkeypatch.setattr(module.shutil, "move", stop)
    with pytest.raises(KeyboardInterrupt):
        unpack(path, folder, LIMITS)
    assert not marker("x.tar", folder).exists()
    monkeypatch.setattr(module.shutil, "move", real)
    (folder / ".x.tar.unpacking" / "data").mkdir(parents=True)  # as a killed process would leave it
    (folder / ".x.tar.unpacking" / "data" / "half.txt").write_text("half")
    unpack(path, folder, LIMITS)
    assert contents(folder) == {**FILES, ".x.tar.unpacked": b""}


def test_user_files_are_not_changed(tmp_path, folder):
    path = make_tar(tmp_path / "x.tar", FILES)
    (folder / "data").mkdir()
    (folder / "data" / "mine.txt").write_text("mine")
    (folder / "data" / "b.txt").write_text("mine")
    with pytest.raises(DataError, match=r"b.txt: not what the archive holds; move it away"):
        unpack(path, folder, LIMITS)
    assert contents(folder) == {"data/mine.txt": b"mine", "data/b.txt": b"mine"}
    (folder / "data" / "b.txt").unlink()
    unpack(path, folder, LIMITS)
    assert contents(folder) == {**FILES, ".x.tar.unpacked": b"", "data/mine.txt": b"mine"}
