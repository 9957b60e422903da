import errno
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from spml.errors import UserError
from spml.files import contents, replacing, replacing_folder, write_error, write_json, write_text
from tests.conftest import refused


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as beside:
        beside.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_an_existing_folder_is_refilled_in_place(here):
    for number in range(2):
        with replacing_folder(Path()) as beside:
            (beside / "in").mkdir()
            (beside / f"{number}.txt").write_text("new")
        # still the current folder
        assert sorted(Path().iterdir()) == [Path(f"{number}.txt"), Path("in")]
    with pytest.raises(RuntimeError), replacing_folder(Path()) as beside:
        (beside / "2.txt").write_text("half")
        raise RuntimeError
    assert sorted(Path().iterdir()) == [Path("1.txt"), Path("in")]


def test_leftovers_of_a_killed_process_are_ignored_and_removed(tmp_path):
    (tmp_path / ".maps.99.part").mkdir()
    assert contents(tmp_path) == []
    with replacing_folder(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_leftovers_of_killed_processes_beside_the_output_are_removed(tmp_path):
    killed = subprocess.Popen(["true"])
    killed.wait()
    with replacing(tmp_path / "a[1].txt") as beside:
        mine, number = beside.name, str(os.getpid())
        beside.write_text("whole")
        living = tmp_path / mine.replace(number, str(os.getppid()))
        elsewhere = tmp_path / ".a[1].txt.00000000-1.part"
    for name in (mine, mine.replace(number, str(killed.pid)), living.name, elsewhere.name):
        (tmp_path / name).write_text("half")
    old = tmp_path / ".a[1].txt.1.part"  # as earlier versions called it
    old.mkdir()
    os.utime(old, (0, 0))
    write_text(tmp_path / "a[1].txt", "whole")
    assert set(tmp_path.iterdir()) == {tmp_path / "a[1].txt", living, elsewhere}
    (tmp_path / mine.replace("a[1].txt", "maps")).mkdir()
    with replacing_folder(tmp_path / "maps"):
        pass
    assert not list(tmp_path.glob(".maps.*"))


def test_a_failed_folder_is_named_and_leaves_nothing(tmp_path):
    out = tmp_path / "out"
    for before in ([], [out]):
        with refused(f"{out} cannot be written: File too large"), replacing_folder(out):
            raise OSError(errno.EFBIG, "File too large")
        assert list(tmp_path.rglob("*")) == before
        out.mkdir(exist_ok=True)


def test_json_is_written_into_new_folders(tmp_path):
    write_json(tmp_path / "w" / "x" / "y.json", {"ä": 1})
    assert (tmp_path / "w" / "x" / "y.json").read_text() == '{\n  "ä": 1\n}\n'


def test_a_file_is_flushed_before_it_is_moved_into_place(tmp_path, monkeypatch):
    path, seen = tmp_path / "a.txt", []
    monkeypatch.setattr(os, "fsync", lambda n: seen.append((os.fstat(n).st_size, path.exists())))
    write_text(path, "whole")
    # The name of the file is flushed after the move, with its folder.
    (size, moved), (_, there) = seen
    assert size == 5 and not moved and there and path.read_text() == "whole"


@pytest.mark.parametrize(
    "error,message",
    [
        (OSError(errno.ENOSPC, "No space left"), "the disk is full"),
        (OSError(errno.EDQUOT, "Quota exceeded"), "the disk is full"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
        (OSError("no number"), "no number"),
    ],
)
def test_a_system_error_is_one_line_that_names_the_file(tmp_path, error, message):
    path = tmp_path / "a.txt"
    for suffix in ("", "; the one written before is whole"):
        with pytest.raises(UserError) as raised, replacing(path):
            raise error
        assert str(raised.value) == f"{path} cannot be written: {message}{suffix}"
        path.write_text("before")


def test_an_error_about_another_file_is_passed_on(tmp_path):
    with pytest.raises(FileNotFoundError, match="other"), replacing(tmp_path / "a.txt"):
        (tmp_path / "other").read_text()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder cannot be written: Is a directory"):
        write_text(tmp_path / "folder", "")


def test_a_librarys_error_is_a_full_disk_only_if_space_is_low(tmp_path, monkeypatch):
    for free, message in ((1 << 20, "the disk is full"), (1 << 30, "it broke")):
        monkeypatch.setattr("shutil.disk_usage", lambda path, free=free: SimpleNamespace(free=free))
        error = write_error(tmp_path / "a", RuntimeError("it\nbroke"))
        assert str(error) == f"{tmp_path / 'a'} cannot be written: {message}"
