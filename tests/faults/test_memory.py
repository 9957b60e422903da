"""Memory runs out at the n-th batch of a command: one line, nothing half written, and a resume."""

import shutil
from pathlib import Path

import pytest
import torch

from spml.data.images.loader import Feed, Stream
from tests.conftest import TINY, contents, remove, same, spml

ERRORS = {
    "an array": MemoryError("Unable to allocate 9.31 GiB for an array with shape (9,)"),
    "a tensor on a GPU": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"),
}
# The scores of the run are gone, so that each command makes them from the pictures.
COMMANDS = {
    "train": "train photos.csv --method gr --out run2 --batch-size 2 --epochs 2 --resume",
    "eval": "eval run --batch-size 2",
    "predict": "predict run photos --out tags.csv --batch-size 2",
    "review": "review run --out review --batch-size 2",
}
TRAINING = TINY.replace("--epochs 1", "")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run on the pictures, once trained."""
    return tmp_path_factory.mktemp("trained") / "run"


@pytest.fixture
def ready(here, pictures, trained):
    """The current folder with pictures and a run without its scores."""
    if not trained.exists():
        assert spml(f"train photos.csv --method gr --out {trained} {TINY}") == 0
        shutil.rmtree(trained / "scores")
    shutil.copytree(trained, "run")
    return here


class Scarce:
    """Counts batches; memory runs out at one of them."""

    def __init__(self, monkeypatch, at=0, error=None):
        self.count, self.at, self.error = 0, at, error
        for kind in (Feed, Stream):
            monkeypatch.setattr(kind, "batches", self.counted(kind.batches))

    def counted(self, original):
        def batches(feed, *arguments, **named):
            for batch in original(feed, *arguments, **named):
                self.count += 1
                if self.count == self.at:
                    raise self.error
                yield batch

        return batches


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.faults)], ids=["some", "all"]
)
def test_lack_of_memory_is_one_line_and_loses_nothing(ready, capsys, command, every):
    line = COMMANDS[command] + f" {TRAINING}" * (command == "train")
    before = contents(ready, without=())
    with pytest.MonkeyPatch.context() as patch:
        whole = Scarce(patch)
        assert spml(line) == 0
    expected = contents(ready)
    if command == "train":
        Path("run2").rename("expected")
    tries = [(number, error) for number in range(1, whole.count + 1) for error in ERRORS]
    for number, name in tries if every else {tries[0], tries[len(tries) // 2], tries[-1]}:
        error = ERRORS[name]
        for name in ("run2", "tags.csv", "run/eval-test.json", "review"):
            path = ready / name
            remove(path)
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            Scarce(patch, number, error)
            assert spml(line) == 2
        printed = capsys.readouterr().err.splitlines()[-1]
        assert "out of memory" in printed and "--batch-size" in printed, printed
        if command != "train":
            left = {name for name in contents(ready, without=()) if not name.startswith("expected")}
            assert left == set(before), number
        assert spml(line) == 0
        if command == "train":
            same(ready / "run2", ready / "expected")
        else:
            assert contents(ready) == expected
