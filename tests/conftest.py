import atexit
import itertools
import json
import os
import pkgutil
import shlex
import shutil
import signal
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

# Tests started in the background would ignore these, and so would their children.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.environ["HF_HUB_OFFLINE"] = "1"  # no test uses the network
os.environ["SPML_CACHE"] = tempfile.mkdtemp(prefix="spml-cache-")  # not the user's cache
atexit.register(shutil.rmtree, os.environ["SPML_CACHE"], ignore_errors=True)
TIMINGS = ("images_per_second", "seconds")
TIMED = ("result.json", "last.ckpt", "config.json", "report.html")  # files with timings
TINY = "--backbone tiny --size 16 --epochs 1 --accelerator cpu --quiet"  # a run of a second


def write_scenes(path: Path, sizes: tuple[int, int, int]) -> Path:
    """Write an .npz of digit scenes with complete labels and three splits of these sizes."""
    from spml.data.readers.digits import Scenes, read_digits

    tables = read_digits(Scenes(sizes=sizes, size=24))
    np.savez(
        path,
        x=np.concatenate([table.x for table in tables.values()]),
        labels=np.concatenate([table.labels for table in tables.values()]),
        classes=np.array(tables["train"].classes),
        split=np.repeat(list(tables), [len(table) for table in tables.values()]),
    )
    return path


@pytest.fixture(autouse=True)
def decoding_limits(monkeypatch):
    """Restore the limits that a command sets for the processes that it starts."""
    for name in ("SPML_DECODE_MEMORY", "SPML_MAX_PIXELS"):
        monkeypatch.setenv(name, "1")
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def scenes_file(tmp_path_factory):
    """A small .npz of digit scenes."""
    return write_scenes(tmp_path_factory.mktemp("scenes") / "scenes.npz", (128, 48, 64))


@pytest.fixture(scope="session")
def scenes(scenes_file):
    """The scenes as an experiment with drawn single positives and complete labels."""
    from spml.data import load

    return load(scenes_file, labels="complete")


@pytest.fixture(scope="session")
def quick():
    """Settings of a run that takes two seconds."""
    from spml.train import Settings

    return Settings(
        method="gr",
        backbone="tiny",
        epochs=3,
        batch_size=32,
        lr=3e-3,
        flip=False,
        accelerator="cpu",
    )


@pytest.fixture
def train(scenes, quick, tmp_path):
    """A function that trains on the scenes into a folder of the test, with `quick` changed."""
    from spml.train import fit

    def run(folder="run", data=None, *, options=None, resume=False, overwrite=False, **settings):
        ways = {"options": options, "resume": resume, "overwrite": overwrite}
        return fit(
            data or scenes, replace(quick, **settings), tmp_path / folder, quiet=True, **ways
        )

    return run


@pytest.fixture(scope="session")
def features_file(tmp_path_factory):
    """An .npz of 120 feature vectors from which three classes can be learned, in three splits."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((120, 3)) < 0.4, 1, -1).astype(np.int8)
    x = (labels @ rng.normal(size=(3, 8)) + rng.normal(size=(120, 8)) / 5).astype(np.float32)
    split, classes = np.repeat(["train", "val", "test"], 40), np.array(list("abc"))
    path = tmp_path_factory.mktemp("features") / "f.npz"
    np.savez(path, x=x, labels=labels, classes=classes, split=split)
    return path


@pytest.fixture(scope="session")
def finished(scenes, quick, tmp_path_factory):
    """A finished run on the scenes. Tests must not change it."""
    from spml.train import fit

    folder = tmp_path_factory.mktemp("runs") / "gr"
    fit(scenes, quick, folder, quiet=True)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run that a test may change."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def stopped(run):
    """The copy without its result, which can be resumed."""
    (run / "result.json").unlink()
    return run


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The test's own folder, as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pictures(tmp_path):
    """A CSV of twelve small pictures of three colours, in their own folder."""
    from PIL import Image

    folder = tmp_path / "photos"
    folder.mkdir()
    colours = [((200, 30, 30), "red"), ((30, 200, 30), "green"), ((30, 30, 200), "blue")]
    rows = ["image,label,split"]
    for i in range(12):
        colour, name = colours[i % 3]
        file = f"{i}.{'png' if i % 2 else 'jpg'}"
        Image.new("RGB", (20 + i, 16), colour).save(folder / file)
        split = ("val", "test")[i % 2] if i >= 8 else "train"
        rows.append(f"photos/{file},{name},{split}")
    table = tmp_path / "photos.csv"
    table.write_text("\n".join(rows) + "\n")
    return table


def spml(line: str) -> int:
    """Run a command as a user types it, without the name of the program; return its exit code."""
    from spml.cli import main

    return main(shlex.split(line))


def refused(message: str):
    """A block that ends with a UserError whose message matches."""
    from spml.errors import UserError

    return pytest.raises(UserError, match=message)


def noise(*shape: int):
    """Pictures of random pixels, the same in every call."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def stored(path: Path) -> dict:
    """The content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def edit(path: Path, **values) -> None:
    """Replace values of a JSON file."""
    path.write_text(json.dumps(stored(path) | values, indent=2), encoding="utf-8")


def outcome(folder: Path) -> dict:
    """result.json without its timings."""
    result = stored(folder / "result.json")
    return {name: value for name, value in result.items() if name not in TIMINGS}


def remove(path: Path) -> None:
    """Delete a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def contents(folder: Path, without=TIMED) -> dict[str, bytes]:
    """Every file's bytes by name, without timings."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in without]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def same(run: Path, expected: Path) -> None:
    """Assert equal results and files, except for files with timings."""
    assert outcome(run) == outcome(expected)
    assert contents(run) == contents(expected)


def history(run: Path) -> list[dict]:
    """The lines of history.jsonl."""
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


@contextmanager
def failing(
    call: int,
    error: BaseException | type[BaseException] = KeyboardInterrupt,
    where: str = "spml.train.loop.epoch_order",  # called when an epoch begins
):
    """A block in which the n-th call of a function fails, by default as by Ctrl-C."""
    original, calls = pkgutil.resolve_name(where), itertools.count(1)

    def counted(*arguments, **named):
        if next(calls) == call:
            raise error
        return original(*arguments, **named)

    kind = error if isinstance(error, type) else type(error)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(kind) as raised:
        patch.setattr(where, counted)
        yield raised


def checkpoint(run: Path) -> dict:
    """The content of last.ckpt."""
    import torch

    return torch.load(run / "last.ckpt", weights_only=True)


def assert_resumes(data, settings, folder: Path, options=None) -> dict:
    """Check that a run interrupted before its third epoch ends like an uninterrupted one.

    Returns:
        The method's state at the interruption.
    """
    import torch

    from spml.train import fit

    fit(data, settings, folder / "whole", options=options, quiet=True)
    with failing(3):
        fit(data, settings, folder / "cut", options=options, quiet=True)
    between = checkpoint(folder / "cut")["method"]
    fit(data, settings, folder / "cut", options=options, resume=True, quiet=True)
    same(folder / "cut", folder / "whole")
    cut, whole = (checkpoint(folder / run)["method"] for run in ("cut", "whole"))
    assert cut.keys() == whole.keys() and all(torch.equal(cut[key], whole[key]) for key in whole)
    return between
