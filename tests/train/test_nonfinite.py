"""Losses and gradients that are not finite."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml.errors import UserError
from spml.model import Classifier, load_model
from spml.model.graphs import FastForward
from spml.runs.checkpoint import read_checkpoint
from spml.train.device import Processes
from spml.train.step import LossWatch, Step, all_finite
from tests.conftest import history, refused
from tests.train.settings import resolved

STEPS = 4  # in an epoch: 128 items in batches of 32
SIXTH = {"step": 6}  # the second of the second epoch


@pytest.fixture
def broken(train):
    """Train with one of the failing methods."""

    def run(method, options, **more):
        return train(method=f"tests.faults.methods:{method}", options=options, **more)

    return run


def finite(run):
    """Return the checkpoint after checking that its weights are finite."""
    state = read_checkpoint(run / "last.ckpt")
    assert all_finite(value for value in state["model"].values() if value.is_floating_point())
    return state


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_step(broken, quick, tmp_path, value):
    with pytest.raises(UserError) as refused:
        broken("broken", {**SIXTH, "value": value})
    message = str(refused.value)
    rows = np.random.default_rng((quick.seed, 2)).permutation(128)[32:64]
    assert message.startswith(f"loss is {value} in epoch 2, batch 2: logits from -")
    assert f"rows {', '.join(map(str, rows[:16]))}, ... of the training split" in message
    assert all(option in message for option in ("--lr", "--precision 32-true", "--on-nan skip"))
    assert finite(tmp_path / "run")["epoch"] == 1


def test_such_a_run_can_be_resumed_with_on_nan_skip(broken, tmp_path):
    with refused("--on-nan skip"):
        broken("broken", SIXTH)
    broken("broken", SIXTH, on_nan="skip", resume=True)
    assert [line.get("skipped") for line in history(tmp_path / "run")] == [None, None, 1, None]


def test_the_bar_shows_the_last_known_loss(broken, monkeypatch):
    shown = []
    noted = lambda self, count, loss=None: shown.append(loss)  # noqa: E731
    monkeypatch.setattr("spml.train.display.Display.advance", noted)
    result = broken("broken", {"step": -1}, epochs=1)
    losses = [loss for loss in shown if loss is not None]
    assert len(losses) == STEPS and all(isinstance(loss, float) for loss in losses)
    assert result["epochs"] == 1


def test_a_run_that_fails_in_its_first_epoch_leaves_no_files(broken, tmp_path):
    with refused("epoch 1, batch 3"):
        broken("broken", {"step": 3})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["broken", "broken_gradient"])
def test_batches_that_are_not_finite_can_be_skipped(broken, tmp_path, method):
    broken(method, SIXTH, on_nan="skip")
    lines = history(tmp_path / "run")
    assert [line.get("skipped") for line in lines] == [None, None, 1, None]
    assert 0.05 < lines[2]["loss"] < lines[1]["loss"]
    assert finite(tmp_path / "run")["epoch"] == 3
    assert all_finite(load_model(tmp_path / "run")[0].parameters())


def test_skipped_batches_do_not_count_in_the_loss_of_an_epoch(broken, tmp_path, monkeypatch):
    losses, add = [], LossWatch.add

    def noted(self, loss, *more):
        losses.append(loss.item())
        add(self, loss, *more)

    monkeypatch.setattr(LossWatch, "add", noted)
    broken("broken", SIXTH, on_nan="skip", epochs=2)
    assert len(losses) == 2 * STEPS - 1
    assert history(tmp_path / "run")[2]["loss"] == pytest.approx(np.mean(losses[STEPS:]))


def test_an_epoch_without_any_finite_loss_ends_the_run(train):
    with refused("no batch of epoch 1 had a finite loss; try"):
        train(method="tests.train.test_nonfinite:never_finite", on_nan="skip")


def never_finite(logits, observed):
    return logits.sum() * float("nan")


never_finite.needs = frozenset({"index"})  # not called by check_method


@pytest.fixture
def blinded(monkeypatch):
    """Replace the pictures of the sixth step by NaN."""
    calls, call = [], FastForward.__call__

    def blind(self, x):
        calls.append(1)
        return call(self, x * float("nan") if len(calls) == 6 else x)

    monkeypatch.setattr(FastForward, "__call__", blind)


def test_skipped_logits_reach_neither_method_nor_batch_norm(broken, tmp_path, blinded):
    broken("broken", {}, on_nan="skip")
    assert [line.get("skipped") for line in history(tmp_path / "run")] == [None, None, 1, None]
    state = finite(tmp_path / "run")["method"]
    assert all_finite([state["scores"]]) and state["steps"] == 3 * STEPS - 1


def test_logits_that_are_nan_end_the_run(broken, tmp_path, blinded):
    with refused("loss is nan in epoch 2, batch 2: logits from nan to nan"):
        broken("broken", {})
    assert finite(tmp_path / "run")["epoch"] == 1


@pytest.mark.parametrize("which", ["logits", "views", "features"])
def test_no_nan_reaches_a_method(which):
    calls = []

    class Method(torch.nn.Module):
        needs = frozenset({"features", "views"})

        def see(self, seen):
            pass

        def forward(self, logits, observed, **more):
            calls.append(more)
            return logits.sum()

    parts = {name: torch.zeros(2, 3) for name in ("logits", "views", "features")}
    parts[which][1, 1] = float("nan")
    both = torch.cat([parts["logits"], parts["views"]]), torch.cat([parts["features"]] * 2)
    step = Step(lambda x: both, Method(), resolved(on_nan="skip", epochs=1), Processes())
    rows = np.arange(2)
    x = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    assert step.loss(x, torch.zeros(2, 3), torch.from_numpy(rows), rows, 1) is None and not calls


WEIGHTS = "weights are not finite after epoch 2, batch"
GRADIENTS = {  # step of the gradient, message, minutes, epochs and steps of the last checkpoint
    "before a checkpoint": (6, f"{WEIGHTS} 2, although its loss was; try", 1e-9, (1, 1)),
    "in the last batch, before validation": (8, f"{WEIGHTS} 4", 10, (1, None)),
    "by the next loss": (6, "loss is nan in epoch 2, batch 3: logits from nan", 10, (1, None)),
}


@pytest.mark.parametrize(("step", "message", "minutes", "saved"), GRADIENTS.values(), ids=GRADIENTS)
def test_a_gradient_that_is_nan_is_found(broken, tmp_path, step, message, minutes, saved):
    with refused(message):
        broken("broken_gradient", {"step": step}, checkpoint_minutes=minutes)
    state = finite(tmp_path / "run")
    assert (state["epoch"], state["within"].get("step")) == saved


@pytest.mark.parametrize("method", ["broken", "broken_gradient"])
def test_linear_init_checks_losses_too(broken, tmp_path, method):
    with refused(r"(loss is nan in|not finite after) linear init, epoch 2, batch [23]"):
        broken(method, SIXTH, linear_init=2)
    assert not (tmp_path / "run").exists()
    broken(method, SIXTH, linear_init=2, on_nan="skip")
    assert history(tmp_path / "run")[0]["linear_init"]["skipped"] == 1
    finite(tmp_path / "run")


def test_features_that_are_nan_reach_no_method_in_linear_init(broken, tmp_path, monkeypatch):
    features, holes = Classifier.features, []

    def with_a_hole(self, x):
        output = features(self, x)
        if len(x) == 32 and not holes:  # the first batch whose features are extracted
            holes.append(output[0].fill_(float("nan")))
        return output

    monkeypatch.setattr(Classifier, "features", with_a_hole)
    broken("broken", {}, linear_init=1, on_nan="skip")
    assert history(tmp_path / "run")[0]["linear_init"]["skipped"] == 1
    state = finite(tmp_path / "run")["method"]
    assert state["steps"] == 4 * STEPS - 1


def test_losses_in_flight_are_checked_before_a_checkpoint():
    watch = LossWatch(torch.nn.Linear(2, 2))
    waited = []
    event = SimpleNamespace(synchronize=lambda: waited.append(1), query=lambda: False)
    for number, loss in enumerate((0.5, float("nan")), start=1):
        watch.in_flight.append(
            (event, torch.tensor([loss, -1.0, 2.0]), np.array([7, 3]), f"step {number}")
        )
    with refused(r"loss is nan in step 2: logits from -1 to 2, rows 7, 3 of the training split"):
        watch.finish()
    assert len(waited) == 2


@pytest.mark.parametrize(("count", "message"), [(16, "14, 15 of the"), (17, "14, 15, ... of the")])
def test_a_long_list_of_rows_is_shortened(count, message):
    watch = LossWatch(torch.nn.Linear(2, 2))
    with refused(message):
        watch.add(torch.tensor(float("inf")), torch.zeros(2, 2), np.arange(count), "step 1")


def test_a_model_without_weights_is_finite():
    LossWatch(torch.nn.Flatten()).finish()
    assert not all_finite([torch.ones(2), torch.tensor([1.0, float("inf")])])
