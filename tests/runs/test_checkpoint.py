"""Checkpoints and models are data: damaged, foreign or executable files are refused, not run."""

import hashlib
import io
import os
import pickle
import shutil
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from spml.files import write_json
from spml.model import load_model
from spml.runs.checkpoint import MARK, TRAILER, read_checkpoint, write_checkpoint
from spml.runs.run import Run
from tests.conftest import contents, failing, outcome, refused, spml

WEIGHTS = {"w": torch.arange(6.0).view(2, 3)}
STATE = {"epoch": 3, "model": WEIGHTS, "history": [{"epoch": 0, "loss": 1.5}], "best": {}}
RAN = []


def program():
    RAN.append("run")


class Program:
    """An object whose pickle runs code when it is read."""

    def __reduce__(self):
        return program, ()


def sealed(data):
    """Append a valid checksum."""
    return data + MARK + hashlib.sha256(data).digest()


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@pytest.fixture
def checkpoint(tmp_path):
    write_checkpoint(tmp_path / "last.ckpt", STATE)
    return tmp_path / "last.ckpt"


def test_a_checkpoint_is_read_as_written(checkpoint):
    state = read_checkpoint(checkpoint)
    assert torch.equal(state.pop("model")["w"], STATE["model"]["w"])
    assert state == {name: value for name, value in STATE.items() if name != "model"}


PROGRAMS = {
    "a pickle": pickle.dumps(Program()),
    "a pickle with its checksum": sealed(pickle.dumps(Program())),
    "a torch file": saved({**STATE, "best": Program()}),
    "a torch file with its checksum": sealed(saved({**STATE, "best": Program()})),
    "an old torch file": sealed(
        pickle.dumps(0x1950A86A20F9469CFC6C) + pickle.dumps(1001) + pickle.dumps(Program())
    ),
}


@pytest.mark.parametrize("data", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_is_refused_and_not_run(checkpoint, data):
    RAN.clear()
    checkpoint.write_bytes(data)
    with refused(r"last.ckpt cannot be read \(it") as error:
        read_checkpoint(checkpoint)
    assert not RAN and "trust" not in str(error.value)
    if data.startswith(b"PK"):
        torch.load(io.BytesIO(data), weights_only=False)
        assert RAN  # it would have run


def test_an_error_without_a_message_is_reported_by_its_type(checkpoint, monkeypatch):
    monkeypatch.setattr(torch, "load", Mock(side_effect=EOFError))
    with refused(r"last.ckpt cannot be read \(EOFError\); give --overwrite"):
        read_checkpoint(checkpoint)


def test_every_changed_byte_is_detected(checkpoint):
    whole = checkpoint.read_bytes()
    for place in [*range(0, len(whole), 61), *range(len(whole) - TRAILER, len(whole))]:
        checkpoint.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with refused("cut off or changed"):
            read_checkpoint(checkpoint)


@pytest.mark.parametrize("length", [0, 1, TRAILER - 1, TRAILER, 100, -TRAILER, -1])
def test_a_truncated_file_is_refused(checkpoint, length):
    checkpoint.write_bytes(checkpoint.read_bytes()[:length])
    with refused("cut off or changed"):
        read_checkpoint(checkpoint)


@pytest.mark.parametrize("value", [[1, 2], {"model": {}}, torch.zeros(3)])
def test_a_file_without_training_state_is_refused(checkpoint, value):
    checkpoint.write_bytes(sealed(saved(value)))
    with refused("it holds no training state"):
        read_checkpoint(checkpoint)


def test_the_checkpoint_of_a_run_on_other_data_is_refused(scenes, train, stopped, tmp_path):
    labels = scenes.observed.labels.copy()
    labels[[0, 1]] = labels[[1, 0]]
    other = replace(scenes, observed=scenes.observed.with_labels(labels))
    train("other", other, epochs=1)
    shutil.copy(tmp_path / "other/last.ckpt", stopped)
    with refused(r"last.ckpt is that of another run: .*settings or data"):
        train(resume=True)


def test_a_checkpoint_that_does_not_fit_is_refused(train, stopped):
    state = read_checkpoint(stopped / "last.ckpt")
    wrong = [
        {name: value for name, value in state.items() if name != "optimizers"},
        {**state, "model": {**state["model"], "head.weight": torch.zeros(3, 3)}},
        {**state, "within": {"step": 1}},
        {**state, "optimizers": []},
        {**state, "model": 3},
    ]
    for other in wrong:
        write_checkpoint(stopped / "last.ckpt", other)
        with refused(r"last.ckpt does not fit this run \(.*\); give --overwrite"):
            train(resume=True)


def test_an_older_checkpoint_is_accepted(train, finished, tmp_path):
    """It has neither the identity of its run nor other random states than that of torch."""
    with failing(7, where="spml.train.step.Step.loss"):
        train(checkpoint_minutes=1e-9)
    state = read_checkpoint(tmp_path / "run/last.ckpt")
    del state["run"], state["within"]["python_rng"], state["within"]["numpy_rng"]
    write_checkpoint(tmp_path / "run/last.ckpt", state)
    train(resume=True)
    assert outcome(tmp_path / "run") == outcome(finished)


@pytest.fixture
def rising(monkeypatch):
    """Make each epoch better than the previous one."""
    figures = iter(range(9))
    monkeypatch.setattr("spml.train.loop.validation_map", lambda *arguments: float(next(figures)))


def test_no_model_is_written_before_the_checkpoint_that_calls_it_the_best(train, tmp_path, rising):
    with failing(2, where="spml.runs.folder.RunFolder.save_checkpoint"):
        train()
    assert load_model(tmp_path / "run")[1].training["epoch"] == 1


def test_a_missing_best_model_is_written_from_the_checkpoint(train, tmp_path, rising):
    run = tmp_path / "run"
    train()
    whole, result = contents(run), outcome(run)
    assert result["best_epoch"] == result["epochs"]
    (run / "result.json").unlink()
    shutil.rmtree(run / "best")
    train(resume=True)
    assert contents(run) == whole and outcome(run) == result


@pytest.mark.parametrize(
    "name", ["last.ckpt", "config.json", "best/model.safetensors", "scores/val-02.npz"]
)
def test_unfinished_files_of_a_killed_process_are_removed(train, stopped, finished, name):
    path = stopped / name
    path.with_name(f".{path.name}.123.part").write_bytes(b"half")
    (stopped / ".notes.part").write_text("mine")
    train(resume=True)
    assert contents(stopped) == {**contents(finished), ".notes.part": b"mine"}


def test_a_run_killed_before_it_wrote_its_configuration_can_begin(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.config.json.99.part").write_text("{")
    train(epochs=1)
    assert not list((tmp_path / "run").glob(".*"))


@pytest.mark.parametrize("moved", [0, 1, 4])
def test_interrupting_the_move_of_the_old_run_restores_it(train, stopped, monkeypatch, moved):
    before = contents(stopped, without=())
    rename, left = type(stopped).rename, [moved]

    def interrupted(self, target):
        left[0] -= 1
        if left[0] == -1:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(type(stopped), "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(overwrite=True)
    assert contents(stopped, without=()) == before
    assert [path.name for path in stopped.parent.iterdir()] == ["run"]


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "a changed weight": (lambda path: flip(path, -5), "its checksum does not fit"),
    "a changed name": (lambda path: flip(path, 60), "not "),
    "cut off": (lambda path: os.truncate(path, path.stat().st_size - 100), "not a file of weights"),
    "empty": (lambda path: path.write_bytes(b""), "not a file of weights"),
    "a program": (lambda path: path.write_bytes(pickle.dumps(Program())), "not a file of weights"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_changed_model_is_refused(run, scenes_file, tmp_path, capsys, damage, message):
    RAN.clear()
    write_json(run / "config.json", {**Run(run).config, "data": str(scenes_file)})
    assert spml(f"eval {run}") == 0
    damage(run / "best/model.safetensors")
    np.savez(tmp_path / "new.npz", x=np.zeros((2, 3, 24, 24), np.uint8))
    out = tmp_path / "tags.csv"
    capsys.readouterr()
    for command in (f"eval {run}", f"predict {run} {tmp_path}/new.npz --out {out}"):
        assert spml(command) == 2
        error = capsys.readouterr().err
        assert "model.safetensors" in error and message in error and error.count("\n") == 1
    assert not RAN and not out.exists()


def test_an_older_model_without_a_checksum_is_accepted(finished, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(finished / "best", tmp_path / "best")
    save_file(load_file(finished / "best/model.safetensors"), tmp_path / "best/model.safetensors")
    again, first = (load_model(folder)[0].state_dict() for folder in (tmp_path / "best", finished))
    assert all(torch.equal(again[name], first[name]) for name in first)
