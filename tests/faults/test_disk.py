"""Each write, flush and rename of a command fails, or the machine stops there; it is run again."""

import os
import shutil

import numpy as np
import pytest

from tests.cli.test_prepare import server  # noqa: F401
from tests.conftest import contents, outcome, remove, spml
from tests.faults.disk import KINDS, Disk, Stopped

SMALL = "--epochs 1 --optimizer sgd --batch-size 16 --accelerator cpu --quiet --selection observed"
RUN = f"--method gr --out run {SMALL}"
BENCH = f"bench data.npz --methods gr --seeds 1 --retry --out bench {SMALL.replace('--quiet ', '')}"


def nothing(monkeypatch):
    """Prepare nothing."""


def old_run(monkeypatch):
    assert spml(f"train data.npz {RUN} --seed 1") == 0


def new_run(monkeypatch):
    assert spml(f"train data.npz {RUN}") == 0


def offered(monkeypatch):
    """The archive of `server` is there."""


def of_run(folder):
    return contents(folder / "run") | {"result": outcome(folder / "run")}


def of_bench(folder):
    tables = {path.name: path.read_bytes() for path in (folder / "bench").glob("table.*")}
    return tables | contents(folder / "bench/gr-0")


def of_voc(folder):
    files = contents(folder / "voc")
    return {name: data for name, data in files.items() if not name.endswith((".lock", ".unpacked"))}


# by name: what is prepared, the command, and the files to compare
COMMANDS = {
    "train": (nothing, f"train data.npz {RUN} --epochs 2 --resume", of_run),
    "pictures": (
        nothing,
        f"train photos.csv --backbone tiny --size 16 --cache-dir cache {RUN} --resume",
        of_run,
    ),
    "overwrite": (old_run, f"train data.npz {RUN} --overwrite", of_run),
    "calibrate": (new_run, "calibrate run", of_run),
    "bench": (nothing, BENCH, of_bench),
    "prepare": (offered, "prepare voc --root voc --download", of_voc),
}


@pytest.fixture
def folder(here, pictures, monkeypatch):
    """The current folder, with arrays of features and with pictures."""
    random = np.random.default_rng(0)
    labels = np.where(np.eye(3, dtype=np.int8)[random.integers(0, 3, 150)] == 1, 1, -1)
    x = (labels + random.normal(size=labels.shape)).astype(np.float32)
    split = np.array(["train"] * 80 + ["val"] * 50 + ["test"] * 20)
    np.savez("data.npz", x=x, labels=labels.astype(np.int8), classes=["a", "b", "c"], split=split)
    for module in ("loader", "cache"):  # one thread decodes, in an order that repeats
        monkeypatch.setattr(f"spml.data.images.{module}.decoders", lambda spared=0: 1)
    # Drawing the report takes longest, and writes nothing.
    monkeypatch.setattr("spml.report.run_page.run_page", lambda *arguments: {})
    monkeypatch.setattr("spml.report.format.render", lambda template, page: "a page")
    return here


def attempt(line, disk):
    """Run a command on a disk; return its exit code, None if the machine stopped.

    The power may also fail after the last operation.
    """
    with disk.mounted():
        try:
            code = spml(line)
        except Stopped:
            return None
    if disk.at > disk.count and disk.kind in ("power", "torn"):
        disk.lose()
        return None
    return code


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "points", [1, pytest.param(None, marks=pytest.mark.faults)], ids=["some", "all"]
)
def test_a_command_on_a_failing_disk_loses_nothing(
    folder, tmp_path_factory, monkeypatch, request, capsys, command, kind, points
):
    ready, line, result = COMMANDS[command]
    if ready is offered:
        request.getfixturevalue("server")
    ready(monkeypatch)
    before = tmp_path_factory.mktemp("before")
    shutil.copytree(folder, before, dirs_exist_ok=True)
    whole = Disk(folder)
    assert attempt(line, whole) == 0
    expected = result(folder)
    at = range(1, whole.count + 2)
    if points is not None:
        first = 1 + 7 * (list(COMMANDS).index(command) + KINDS.index(kind)) % (
            whole.count // points
        )
        at = [*at[first :: whole.count // points], whole.count + 1]
    for number in at:
        for path in folder.iterdir():
            remove(path)
        shutil.copytree(before, folder, dirs_exist_ok=True)
        capsys.readouterr()
        disk = Disk(folder, number, kind)
        code = attempt(line, disk)
        where = f"{number} of {whole.count}: {disk.happened}"
        error = capsys.readouterr().err
        if kind == "error":
            assert code in ((0, 1, 2) if command == "bench" else (0, 2)), (where, error)
            assert "unexpected" not in error, (where, error)
            assert code != 2 or error.count("spml: ") == 1, (where, error)
            assert not leftovers(folder), (where, leftovers(folder))
        assert code != 0 or result(folder) == expected, where
        for lock in folder.glob("*/locks/*"):
            os.utime(lock, (0, 0))  # a torn lock expires after some minutes
        assert spml(line) == 0, (where, capsys.readouterr().err)
        assert result(folder) == expected, where
        assert not leftovers(folder), (where, leftovers(folder))
    with capsys.disabled():
        print(f"{command}, {kind}: {len(at)} tries on {whole.count} operations")


def leftovers(folder):
    """Unfinished files; a download that broke off is resumed from its own."""
    return list(folder.rglob(".*.part"))
