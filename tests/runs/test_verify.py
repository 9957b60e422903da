"""A resumed run folder is repaired or refused before the first step; `spml check` verifies one."""

import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from spml.runs.run import Run
from spml.train import fit
from tests.conftest import contents, failing, refused, remove, same, spml

STEP = "spml.train.step.Step.loss"


def empty(path):
    path.write_bytes(b"")


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def other(path):
    """Write arrays of the same names with other contents."""
    with np.load(path) as stored:
        np.savez(path, **{name: np.atleast_1d(array)[:1] for name, array in stored.items()})


@pytest.fixture(scope="module")
def begun(scenes, quick, tmp_path_factory):
    """A run that stopped within its third epoch, after two checkpoints."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    with failing(10, where=STEP):
        fit(scenes, quick, folder, quiet=True)
    return folder


@pytest.fixture
def unfinished(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "unfinished")


@pytest.fixture
def resume(scenes, quick):
    """Resume a run without printing."""
    return partial(fit, scenes, quick, resume=True, quiet=True)


@pytest.mark.parametrize("damage", [empty, cut, remove, other])
@pytest.mark.parametrize("name", ["observed.npz", "labels.npz", "scores/val-02.npz"])
def test_files_that_can_be_made_again_are_made_before_the_first_step(
    unfinished, begun, finished, resume, damage, name
):
    damage(unfinished / name)
    with failing(1, where=STEP):
        resume(unfinished)
    assert (unfinished / name).read_bytes() == (begun / name).read_bytes()
    resume(unfinished)
    same(unfinished, finished)


def test_the_scores_of_the_best_epoch_are_made_again_from_its_model(run, finished, resume):
    best = Run(run).best_epoch
    (run / "result.json").unlink()
    remove(run / f"scores/val-{best:02}.npz")
    resume(run)
    same(run, finished)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("scores/val-00.npz", empty, "damaged and cannot be made again; put the file back, or"),
        ("best/model.safetensors", empty, "model.safetensors.* put the file back"),
        ("best/model.safetensors", remove, "model.safetensors.* put the file back"),
        ("best/model.json", empty, "model.json.* put the file back"),
        ("best/model.json", remove, "no model.json"),
    ],
)
def test_other_files_are_refused_before_the_first_step(
    scenes, quick, tmp_path, monkeypatch, name, damage, words
):
    figures = iter((0.0, 9.0, 5.0))  # the first epoch is the best
    monkeypatch.setattr("spml.train.loop.validation_map", lambda *arguments: next(figures))
    with failing(10, where=STEP):
        fit(scenes, quick, tmp_path / "run", quiet=True)
    damage(tmp_path / "run" / name)
    before = contents(tmp_path / "run")
    with refused(words):
        fit(scenes, quick, tmp_path / "run", resume=True, quiet=True)
    assert contents(tmp_path / "run") == before


def test_removed_scores_of_another_epoch_are_reported_once(unfinished, resume, capsys):
    remove(unfinished / "scores/val-00.npz")
    resume(unfinished, quiet=False)
    assert capsys.readouterr().out.count("val-00.npz is missing: figures over epochs leave") == 1


@pytest.mark.parametrize("damage", [empty, cut, remove])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(
    scenes, quick, unfinished, finished, resume, capsys, damage
):
    damage(unfinished / "last.ckpt")
    with failing(1, where=STEP):
        fit(scenes, quick, unfinished, resume=True)
    printed = capsys.readouterr().out
    assert printed.count("resuming from previous.ckpt before it") == 1
    assert "resuming after epoch 1 of 3" in printed
    with failing(5, where=STEP):
        resume(unfinished)
    # The damaged one is gone: the next to be replaced is whole.
    assert spml(f"check {unfinished}") == 0
    resume(unfinished)
    same(unfinished, finished)


def test_two_damaged_checkpoints_are_refused(unfinished, resume):
    cut(unfinished / "last.ckpt")
    empty(unfinished / "previous.ckpt")
    with refused("last.ckpt cannot be read"):
        resume(unfinished)


@pytest.mark.parametrize(
    "name", ["result.json", "best/model.safetensors", "labels.npz", "scores/test.npz"]
)
def test_a_finished_run_with_a_damaged_file_is_finished_again(
    scenes, quick, run, finished, capsys, name, monkeypatch, tmp_path
):
    if name.startswith("best"):
        figures = iter(range(9))  # the last epoch is the best, and the checkpoint has its weights
        monkeypatch.setattr("spml.train.loop.validation_map", lambda *arguments: next(figures))
        run, finished = tmp_path / "rising", tmp_path / "whole"
        fit(scenes, quick, run, quiet=True)
        shutil.copytree(run, finished)
    cut(run / name)
    fit(scenes, quick, run, resume=True)
    assert f"{name.rpartition('/')[2]}" in capsys.readouterr().out
    same(run, finished)
    cut(run / "result.json")
    remove(run / "last.ckpt")
    with refused("result.json: not JSON"):
        fit(scenes, quick, run, resume=True)


NAMES = [
    *("config.json", "history.jsonl", "result.json", "last.ckpt", "observed.npz", "labels.npz"),
    *("best/model.safetensors", "best/model.json", "scores/val-01.npz", "scores/test.npz"),
]
CASES = [(name, damage) for name in NAMES for damage in (empty, cut, remove)]
CASES += [(name, other) for name in NAMES if name.endswith(".npz")]
CASES += [("contents.npz", damage) for damage in (empty, cut)]


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_check_names_each_damaged_file_of_a_run(run, capsys, name, damage):
    damage(run / name)
    code, printed = spml(f"check {run}"), capsys.readouterr()
    if damage is remove and name in ("last.ckpt", "result.json"):
        assert code == 0  # a finished run does not need a checkpoint, another no result
    elif damage is remove and name == "config.json":
        assert code == 2  # no run
    else:
        assert code == 1 and Path(name).name in printed.out
        assert printed.out.endswith("problem\n") or printed.out.endswith("problems\n")


def test_check_says_how_far_a_sound_run_is(run, unfinished, capsys):
    assert spml(f"check {run}") == spml(f"check {unfinished}") == 0
    finished_line, other_line = capsys.readouterr().out.splitlines()
    assert finished_line.endswith("every file is whole; the run is finished")
    assert other_line.endswith("every file is whole; the run is not finished, 2 epochs")
