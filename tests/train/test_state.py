"""State of a run: saved, restored, written in the background, and its averaged weights."""

import random
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from spml import losses
from spml.files import read_json
from spml.keyed import key
from spml.model import Classifier
from spml.runs.checkpoint import read_checkpoint, write_checkpoint
from spml.train.state import (
    Parts,
    Progress,
    WeightAverage,
    Writer,
    preserved_random_state,
    random_state,
    seed_all,
    set_random_state,
)
from tests.conftest import assert_resumes, failing, refused, same

CPU = torch.device("cpu")


class Drawing(losses.Method):
    """Draws a number when an epoch begins."""

    def begin_epoch(self, epoch, epochs):
        self.begun = (epoch, epochs, torch.rand(()).item())


def parts():
    model = Classifier.build("linear", 2, features=3)
    return Parts(model, Drawing(), [torch.optim.Adam(model.parameters())], torch.device("cpu"))


def test_an_interrupted_epoch_restarts_with_its_draws_and_continues():
    first, second = parts(), parts()
    first.classifier(torch.ones(1, 3)).sum().backward()
    first.optimizers[0].step()
    state = Progress(within={"total": torch.zeros(())}).state(2, first, 7.0)
    following = torch.rand(())
    progress = Progress()
    assert progress.restore(state, second, seed=5, epochs=9) == 2
    assert torch.equal(torch.rand(()), following)
    seed_all(key(5, 3))
    assert second.method.begun == (3, 9, torch.rand(()).item())
    assert progress.spent == {"train_images": 0, "train_seconds": 0.0, "seconds": 7.0}
    weights = second.classifier.state_dict(), first.classifier.state_dict()
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())
    assert (
        second.optimizers[0].state_dict()["state"].keys()
        == first.optimizers[0].state_dict()["state"].keys()
        != set()
    )


def drawn():
    return random.random(), np.random.rand(), torch.rand(1).item()


def test_a_seed_of_any_size_seeds_all_three():
    for number in (7, 2**40 + 7):
        seed_all(number)
        first = drawn()
        seed_all(number)
        assert drawn() == first
        seed_all(number + 1)
        assert all(one != other for one, other in zip(drawn(), first, strict=True))


def test_a_checkpoint_restores_each_generator(tmp_path):
    drawn()
    write_checkpoint(tmp_path / "last.ckpt", {"epoch": 1, **random_state(CPU)})
    then = drawn()
    state = read_checkpoint(tmp_path / "last.ckpt")
    set_random_state(state, CPU)
    assert drawn() == then and state == {"epoch": 1}


def test_draws_inside_the_block_do_not_change_those_outside():
    seed_all(3)
    expected = drawn()
    seed_all(3)
    with pytest.raises(KeyError), preserved_random_state():
        seed_all(9)
        drawn()
        raise KeyError
    assert drawn() == expected


def test_tasks_run_in_order_in_another_thread():
    done, gate = [], threading.Event()
    with Writer(background=True) as writer:
        writer.do(lambda: (gate.wait(10), done.append(("first", threading.current_thread()))))
        writer.do(lambda: done.append(("second", threading.current_thread())))
        assert not done
        gate.set()
        writer.wait()
        assert [name for name, _ in done] == ["first", "second"]
        assert threading.main_thread() not in {thread for _, thread in done}


def test_a_copy_does_not_change():
    state = {"weights": torch.zeros(2), "history": [{"epoch": 1}], "rate": 0.1}
    copied = Writer(background=True).copy(state)
    state["weights"] += 1
    state["history"].append({"epoch": 2})
    assert copied["weights"].tolist() == [0, 0]
    assert copied["history"] == [{"epoch": 1}] and copied["rate"] == 0.1
    assert Writer(background=False).copy(state) is state


def fail():
    raise OSError("no room")


def test_an_error_is_raised_by_wait_and_at_the_end_and_by_the_next_task():
    with pytest.raises(OSError, match="no room"), Writer(background=True) as writer:
        writer.do(fail)
    for background in (True, False):
        writer = Writer(background)
        with pytest.raises(OSError, match="no room"):
            writer.do(fail)
            writer.wait()
    deadline = time.monotonic() + 10
    with pytest.raises(OSError, match="no room"):
        while time.monotonic() < deadline:
            writer.do(fail)


def test_submitted_tasks_are_finished_whatever_ended_the_run():
    done, gate = [], threading.Event()
    with pytest.raises(KeyboardInterrupt), Writer(background=True) as writer:
        writer.do(lambda: done.append(gate.wait(0.3)))
        raise KeyboardInterrupt
    assert done == [False]


def test_after_a_failure_nothing_more_is_written():
    done, gate = [], threading.Event()
    writer = Writer(background=True)
    writer.do(lambda: gate.wait(10) and fail())
    writer.do(done.append, "the model that the checkpoint was to hold")
    gate.set()
    with pytest.raises(OSError, match="no room"):
        writer.wait()
    writer.wait()
    assert not done


def test_a_run_that_writes_in_the_background_leaves_the_same_files(
    finished, train, tmp_path, monkeypatch
):
    monkeypatch.setattr("spml.train.loop.Writer", lambda background: Writer(background=True))
    train()
    same(tmp_path / "run", finished)


def test_the_average_follows_its_definition():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
    average, expected = WeightAverage(model, 0.5), model[0].weight.detach().clone()
    for step in range(1, 12):
        model(torch.randn(4, 3, dtype=torch.float64))
        with torch.no_grad():
            model[0].weight += torch.randn(2, 3)
        average.update()
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model[0].weight.detach()
    own = {name: value.clone() for name, value in model.state_dict().items()}
    with average.applied():
        torch.testing.assert_close(model[0].weight.detach(), expected)
        assert not torch.equal(model[1].running_mean, own["1.running_mean"])
        assert torch.equal(model[1].num_batches_tracked, own["1.num_batches_tracked"])
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())


def test_the_average_is_validated_and_stored_and_resumes_to_the_same_bytes(
    finished, scenes, quick, train, tmp_path
):
    assert_resumes(scenes, replace(quick, ema=0.9), tmp_path)
    assert read_json(tmp_path / "whole/config.json")["ema"] == 0.9
    weights = [folder / "best/model.safetensors" for folder in (tmp_path / "whole", finished)]
    assert weights[0].read_bytes() != weights[1].read_bytes()
    with failing(7, where="spml.train.step.Step.loss"):
        train("within", ema=0.9, checkpoint_minutes=1e-9)
    train("within", ema=0.9, resume=True)
    same(tmp_path / "within", tmp_path / "whole")


@pytest.mark.parametrize("ema", [-0.1, 1.0])
def test_a_decay_outside_its_range_is_refused(train, ema):
    with refused("decay"):
        train(ema=ema)
