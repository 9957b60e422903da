"""A run folder is resumed, replaced or refused, no file in it is lost, and one process owns it."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from spml import losses
from spml.data import LabelTable, load
from spml.errors import UserError
from spml.files import read_json
from spml.model.backbones import build_backbone
from spml.runs.folder import Claim, RunFolder
from spml.train import fit
from spml.train.loop import Training
from tests.conftest import contents, failing, outcome, refused


def stop(run):
    """Remove the result, as if the run was stopped; return its other files."""
    (run / "result.json").unlink()
    return contents(run)


def test_resuming_a_finished_run_returns_its_result(finished, scenes, quick):
    before = contents(finished, without=())
    fit(scenes, quick, finished, resume=True, quiet=True)
    assert contents(finished, without=()) == before


def test_resuming_with_changed_code_of_a_custom_method_is_refused(train, tmp_path, monkeypatch):
    file = tmp_path / "edited.py"
    text = "def loss(logits, observed):\n    return (logits * logits).mean()\n"
    file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    own = {"method": "edited:loss", "epochs": 1}
    train(**own)
    config = read_json(tmp_path / "run" / "config.json")
    assert config["method_sha256"] == losses.code("edited:loss")
    train(resume=True, **own)
    file.write_text(text.replace("logits * logits", "logits.exp()"))
    losses.code.cache_clear()  # as another process
    with refused("was begun with other code of its method; resume it with"):
        train(resume=True, **own)


def test_a_run_resumes_on_moved_data_and_stores_their_new_place(pictures, quick, tmp_path):
    here, there, run = pictures.parent, tmp_path / "elsewhere", tmp_path / "run"
    settings = replace(quick, backbone="tiny", size=16, batch_size=4, epochs=1)
    fit(load(pictures), settings, run, quiet=True, extra_config={"root": str(here), "val": None})
    # These files contain places and timings.
    without = ("config.json", "model.json", "README.md", "result.json", "last.ckpt", "report.html")
    before = contents(run, without=without)
    stop(run)
    shutil.copytree(here / "photos", there / "photos")
    shutil.copy(pictures, there)
    moved = load(there / pictures.name)
    again = {"quiet": True, "resume": True, "extra_config": {"root": str(there), "val": None}}
    fit(moved, settings, run, **again)
    config = read_json(run / "config.json")
    assert (config["root"], config["data"]) == (str(there), moved.name)
    assert contents(run, without=without) == before and (run / "result.json").exists()
    text = (there / pictures.name).read_text().splitlines()
    (there / pictures.name).write_text("\n".join([*text[:1], *text[2:]]) + "\n")
    with refused("was begun with other data"):
        fit(load(there / pictures.name), settings, run, **again)


def test_a_run_resumes_with_a_moved_file_of_observed_labels(scenes, quick, tmp_path):
    run = tmp_path / "run"

    def trained(place, resume=True):
        drawn = {"model": "file", "path": str(place), "contradicting": 0}
        data, extra = replace(scenes, observation=drawn), {"observe": f"file:{place}"}
        fit(data, quick, run, quiet=True, resume=resume, extra_config=extra)
        config = read_json(run / "config.json")
        assert (config["observe"], config["observation"]) == (extra["observe"], drawn)
        return outcome(run)

    before = trained("old.csv", resume=False)
    stop(run)
    assert trained(tmp_path / "new.csv") == before
    with refused(r"begun with observation.model = 'file', not 'uniform'"):
        fit(scenes, quick, run, quiet=True, resume=True, extra_config={"observe": "uniform"})


def test_a_run_resumes_with_a_moved_file_of_weights(train, tmp_path):
    old, new, run = tmp_path / "weights.pt", tmp_path / "elsewhere" / "weights.pt", tmp_path / "run"
    new.parent.mkdir()
    torch.save(build_backbone("tiny", "none").network.state_dict(), old)
    train(weights=str(old))
    before = outcome(run)
    stop(run)
    old.rename(new)
    train(weights=str(new), resume=True)
    assert outcome(run) == before and read_json(run / "config.json")["weights"] == str(new)
    with refused(r"was begun with weights = 'weights.pt', not 'none'"):
        train(weights="none", resume=True)


def test_resuming_on_other_content_at_another_place_is_refused(train, scenes, tmp_path):
    run, table = tmp_path / "run", scenes.observed
    train(data=replace(scenes, name="old.npz"))
    before = contents(run, without=())
    pixels = LabelTable(table.items, table.classes, table.sparse, x=255 - table.x)
    others = replace(scenes, name="new.npz", observed=pixels)
    with refused(r"other pictures or features than those of new.npz; resu"):
        train(data=others, resume=True)
    assert contents(run, without=()) == before
    train(data=replace(scenes, name="new.npz"), resume=True)
    with refused("items have other content than when the run was trained"):
        train(data=replace(others, name="new.npz"), resume=True)
    assert read_json(run / "config.json")["data"] == "new.npz"


def swapped(scenes):
    """The scenes with two items exchanged."""
    first, second, *others = scenes.observed.items
    table = LabelTable(
        [second, first, *others], scenes.classes, scenes.observed.sparse, x=scenes.observed.x
    )
    return replace(scenes, observed=table)


def test_an_existing_run_is_refused_and_untouched(finished, scenes, quick):
    before = contents(finished, without=())
    with refused(r"already holds a run; give --resume, --overwrite"):
        fit(scenes, quick, finished, quiet=True)
    for data, settings, options, message in (
        (scenes, replace(quick, lr=0.1), {}, "was begun with lr = 0.003, not 0.1"),
        (scenes, quick, {"q3": 2}, r"begun with options.q3 = 1.0, not 2; "),
        (swapped(scenes), quick, {}, "begun with other data"),
    ):
        with refused(message):
            fit(data, settings, finished, options=options, resume=True, quiet=True)
    assert contents(finished, without=()) == before


def test_a_folder_with_other_files_is_refused(train, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with refused("not empty and holds no run"):
        train(".", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_overwrite_replaces_the_run_and_keeps_other_files(run, train):
    (run / "notes.txt").write_text("mine")
    train(epochs=1, overwrite=True)
    assert outcome(run)["epochs"] == 1
    assert not (run / "scores" / "val-02.npz").exists()
    assert (run / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("where", ["Checkpoints", "epoch_order"])
def test_a_replaced_run_stays_until_the_new_one_has_a_checkpoint(run, train, where):
    before = contents(run, without=())
    with failing(1, UserError, f"spml.train.loop.{where}"):
        train(overwrite=True)
    assert contents(run, without=()) == before
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_run_killed_while_it_replaces_another_restores_it(run, train):
    before = contents(run, without=())
    RunFolder(run).begin({"half": "written"})  # and killed before its first checkpoint
    with refused("already holds a run"):
        train()
    assert contents(run, without=()) == before


@pytest.mark.parametrize("moves", [1, 3, 6])
def test_a_run_killed_while_it_moves_another_loses_nothing(run, train, monkeypatch, moves):
    before = contents(run, without=())
    original, left = Path.rename, 0

    def killed(self, target):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return original(self, target)

    def away():
        RunFolder(run).begin({})

    def back():
        RunFolder(run).check({}, resume=False, overwrite=True)

    for work, allowed in ((away, moves), (back, moves - 1)):
        left = allowed
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, "rename", killed)
            work()
    with refused("already holds a run"):
        train()
    assert contents(run, without=()) == before
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_run_in_the_current_folder_is_replaced(run, scenes, quick, monkeypatch):
    monkeypatch.chdir(run)
    fit(scenes, replace(quick, epochs=1), ".", overwrite=True, quiet=True)
    assert read_json(Path("result.json"))["epochs"] == 1
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_run_on_a_mount_point_is_replaced(finished, scenes, quick, tmp_path, monkeypatch):
    disk, link = tmp_path / "disk", tmp_path / "link"
    shutil.copytree(finished, disk)
    link.symlink_to(disk)
    original = Path.rename

    def within_the_disk(self, target):
        if not Path(target).resolve().is_relative_to(disk):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(self))
        return original(self, target)

    monkeypatch.setattr(Path, "rename", within_the_disk)
    fit(scenes, replace(quick, epochs=1), link, overwrite=True, quiet=True)
    assert link.is_symlink() and read_json(disk / "result.json")["epochs"] == 1
    assert not list(disk.glob(".*"))


def test_a_run_that_fails_behind_a_link_reports_its_error(scenes, quick, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    with failing(1, UserError("no")) as raised:
        fit(scenes, quick, tmp_path / "link", quiet=True)
    assert str(raised.value) == "no" and (tmp_path / "link").is_symlink()
    assert not list((tmp_path / "disk").iterdir())


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
