"""Two processes never train into one folder: the second is refused and changes nothing."""

import pytest

from spml.runs.folder import Claim, RunFolder
from spml.train.loop import Training
from tests.conftest import contents, outcome, refused

REFUSED = r"another process trains into .*run; wait for it, or give another --out"


def test_a_file_is_locked_until_the_block_ends(tmp_path):
    path = tmp_path / "config.json"
    with Claim() as first, Claim() as second:
        first.take(path)  # no file to lock
        path.write_text("{}")
        first.take(path)
        first.take(path)  # its own lock
        with refused("another process"):
            second.take(path)
        path.rename(tmp_path / "old.json")
        path.write_text("{}")
        second.take(path)
        with refused("another process"):
            second.take(tmp_path / "old.json")
        with refused("another process"):
            first.take(path)
    with Claim() as third:
        third.take(path)
        third.take(tmp_path / "old.json")
    with third:
        third.take(path)  # again, after its block


@pytest.mark.parametrize("way", ["resume", "overwrite"])
@pytest.mark.parametrize("begun", [True, False], ids=["with a checkpoint", "just begun"])
def test_a_run_owned_by_another_process_is_left_alone(finished, run, train, tmp_path, way, begun):
    other = RunFolder(run)
    if begun:
        (run / "result.json").unlink()
        other.claim.take(run / "config.json")
    else:
        other.begin({})  # replaces the finished run
    (run / ".last.ckpt.99.part").write_bytes(b"unfinished")
    before = contents(tmp_path, without=())
    with other.claim:
        with refused(REFUSED):
            train(**{way: True})
        assert contents(tmp_path, without=()) == before
    if begun:
        train(**{way: True})
        assert outcome(run) == outcome(finished)


def test_a_run_that_another_process_began_meanwhile_is_left_alone(train, tmp_path, monkeypatch):
    other, init = RunFolder(tmp_path / "run"), Training.__init__

    def meanwhile(self, *arguments):
        init(self, *arguments)
        other.begin({"its": "own"})

    monkeypatch.setattr(Training, "__init__", meanwhile)
    with other.claim:
        with refused(REFUSED):
            train()
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]
