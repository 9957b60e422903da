"""The parts of a run, their learning rates, and the checks before it starts."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from spml import losses
from spml.data import load
from spml.model import Classifier
from spml.train import Settings, fit, fitting
from spml.train.device import smallest_share
from spml.train.fitting import example, make_method, make_model, memory_note, warmup_note
from spml.train.resolve import check_method, check_model, check_single_item, resolve
from spml.train.step import optimizer_for
from tests.conftest import refused
from tests.train.settings import experiment, resolved


def test_an_example_has_the_shape_of_a_training_item(scenes):
    vectors = experiment("mine.npz", np.zeros((3, 5), np.float32))
    array = experiment("mine.npz", np.zeros((3, 3, 8, 8), np.uint8))
    shapes = {
        (1, 5): example(vectors, resolve(Settings(), vectors)),
        (1, 3, 8, 8): example(array, resolve(Settings(), array)),
        (1, 3, 6, 6): example(array, resolve(Settings(size=6), array)),
        (1, 3, 448, 448): example(
            experiment("mine.csv"), resolve(Settings(), experiment("mine.csv"))
        ),
    }
    assert all(tuple(item.shape) == shape for shape, item in shapes.items())
    assert [item.dtype for item in shapes.values()] == [torch.float32] + [torch.uint8] * 3


def test_feature_vectors_are_standardised_by_the_training_rows_alone():
    x = np.array([[1.0, 7], [3, 7], [100, -5]], np.float32)  # the last row is for validation
    vectors = experiment("mine.npz", x)
    model = make_model(vectors, resolve(Settings(), vectors))
    assert model.mean.tolist() == [[2, 7]] and model.std.tolist() == [[1, 1]]


@pytest.mark.parametrize("frozen", [False, True])
def test_backbone_head_and_method_learn_at_their_rates(frozen):
    model = Classifier.build("tiny", 3)
    model.frozen_norm = frozen
    method = losses.create("role", items=5, classes=3, observed=torch.zeros(5, 3))
    groups = optimizer_for(model.train(), method, resolved(lr=0.01, head_lr=5.0)).param_groups
    assert [group["lr"] for group in groups] == [0.01, pytest.approx(0.05), pytest.approx(0.05)]
    assert [len(group["params"]) for group in groups] == [4 if frozen else 12, 2, 1]


def test_a_method_gets_the_training_labels_only_if_it_needs_them(scenes, monkeypatch):
    calls = []
    monkeypatch.setattr("spml.losses.create", lambda name, **options: calls.append(options))
    make_method(scenes, "role", {"q": 1})
    make_method(scenes, "gr", {"q": 1})
    items, classes, observed = (calls[0][name] for name in ("items", "classes", "observed"))
    assert (items, classes) == (len(scenes.train_rows), 10)
    assert np.array_equal(observed.labels, scenes.observed.take(scenes.train_rows).labels)
    assert calls[1] == {"q": 1}


def test_one_process_needs_neither_the_supervisor_nor_tensorboard(
    scenes, quick, tmp_path, monkeypatch
):
    for module in ("supervisor", "linear_init", "augment"):
        monkeypatch.setitem(sys.modules, f"spml.train.{module}", None)  # importing it now fails
    fit(scenes, replace(quick, epochs=1, flip=True), tmp_path / "run", quiet=True)


PICTURE = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)


class Noting(losses.Method):
    """Records the features it gets, and refuses them on request."""

    needs = frozenset({"features"})

    def __init__(self, refuse=False):
        super().__init__()
        self.refuse, self.shown = refuse, []

    def prepare(self, features):
        self.shown.append(features)
        if self.refuse:
            raise ValueError("not such features")

    def forward(self, logits, observed, **more):
        raise AssertionError("a trial would be remembered")


def test_large_memory_is_reported_and_refused_if_it_is_not_free(monkeypatch):
    for free in (None, 2**40):
        monkeypatch.setattr(fitting, "free_memory", lambda device, free=free: free)
        assert memory_note("ll_cp", 2**20 - 1, 2**10, {}) is None
        note = "ll_cp keeps 1.1 GB for 1,048,576 items of 1,024 classes"
        assert memory_note("ll_cp", 2**20, 2**10, {}) == note
        assert "9.7 GB" in memory_note("em_apl", 2**20, 2**10, {"beta": 0.1})
    size = losses.memory("ll_cp", 100, 10)
    monkeypatch.setattr(fitting, "free_memory", lambda device: size / fitting.MEMORY_SHARE)
    assert memory_note("ll_cp", 100, 10, {}) is None
    with refused(r"but only .* of memory are free; give other options or another --method"):
        memory_note("ll_cp", 101, 10, {})


def test_a_stateful_method_is_not_called_and_others_must_return_one_number():
    check_method(Noting(), "noting", 3, 5)
    check_method(losses.create("gr"), "gr", 3, 5)
    with refused("an returns no single number to minimise"):
        check_method(losses.create("an", reduction="none"), "an", 3, 5)
    with refused("gr cannot be used with these options on 3 classes"):
        check_method(losses.create("gr", w=[0.0, 1.0, 2.0, 3.0]), "gr", 3, 5)
    learned = losses.create("gr_learnable", q2=[0.1, 0.2, 0.3, 0.4], **DATA)
    with refused("gr_learnable cannot be used with these options on 3 cl"):
        check_method(learned, "gr_learnable", 3, 5)


DATA = {"items": 5, "classes": 3, "observed": torch.eye(5, 3, dtype=torch.int8)}


@pytest.mark.parametrize("name", losses.names())
def test_every_method_must_return_one_number_and_a_check_changes_no_state(name):
    data = DATA if "items" in losses.needs(name) else {}
    method = losses.create(name, reduction="sum", **data)
    before = {
        key: value.clone() for key, value in method.state_dict().items() if "projection" not in key
    }
    check_method(method, name, 3, 5)
    assert method.training
    for key, value in before.items():
        torch.testing.assert_close(method.state_dict()[key], value, rtol=0, atol=0, equal_nan=True)
    with refused(f"{name} returns no single number to minimise"):
        check_method(losses.create(name, reduction="none", **data), name, 3, 5)


@pytest.mark.parametrize("name", ["em_apl", "crisp", "mime", "smile"])
def test_a_warm_up_as_long_as_training_is_reported(name):
    method = losses.create(name, **DATA)
    message = (
        f"{name} only warms up in 4 epochs, because its warmup is 4; give more --epochs or a lower"
    )
    assert warmup_note(method, name, {"warmup": 4}, 4).startswith(message)
    assert warmup_note(method, name, {"warmup": 4}, 5) is None


def test_other_methods_have_no_warm_up_to_report():
    table = losses.create("smile", **DATA, x=torch.rand(5, 4))
    for method, name in ((table, "smile"), (losses.create("gr"), "gr"), (Noting(), "noting")):
        assert warmup_note(method, name, {"warmup": 4} if name != "gr" else {}, 1) is None


@pytest.mark.parametrize(("linear_init", "message"), [(0, True), (6, False)])
def test_a_run_prints_that_its_method_only_warms_up(
    scenes, quick, tmp_path, capsys, linear_init, message
):
    settings = replace(quick, method="em_apl", epochs=1, linear_init=linear_init)
    fit(scenes, settings, tmp_path / "run")
    assert ("em_apl only warms up in 1 epoch, because" in capsys.readouterr().out) == message


def test_a_method_gets_the_features_and_views_it_needs_or_is_refused():
    model, method = Classifier.build("tiny", 4), Noting()
    check_model(model, method, PICTURE, "noting", "tiny")
    assert [tuple(shown.shape) for shown in method.shown] == [(1, 4, 4, 4)]
    assert method.shown[0].dtype == torch.float32 and not method.shown[0].is_inference()
    with refused("not such features"):
        check_model(model, Noting(refuse=True), PICTURE, "noting", "tiny")
    method.needs = frozenset({"index"})
    check_model(model, method, PICTURE, "noting", "tiny")
    assert len(method.shown) == 1
    method.needs = frozenset({"views"})
    check_model(model, method, PICTURE, "noting", "tiny")
    vectors = Classifier.build("linear", 4, features=5)
    with refused("noting needs views: two augmentations of a picture"):
        check_model(vectors, method, torch.zeros(1, 5), "noting", "linear")


def test_a_single_item_that_batch_norm_cannot_use_is_refused_without_side_effects():
    model = Classifier.build("resnet18", 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    message = (
        "batch norm of resnet18 cannot learn from one picture of 32 px, "
        ".*--batch-size, a larger --size, or --frozen"
    )
    with refused(message):
        check_single_item(model, torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "resnet18")
    check_single_item(model, torch.zeros(1, 3, 64, 64, dtype=torch.uint8), "resnet18")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training
    model.frozen_norm = True
    check_single_item(model, torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "resnet18")


@pytest.mark.parametrize(
    ("items", "batch", "devices", "accelerator", "share"),
    [
        (33, 16, 1, "cpu", 1),
        (32, 16, 1, "cpu", 16),
        (5, 16, 1, "cpu", 5),
        (34, 16, 2, "cpu", 1),
        (35, 16, 2, "cpu", 2),
        (33, 16, 2, "cuda", 2),  # statistics are over all processes
    ],
)
def test_the_smallest_share_comes_from_the_last_batch(items, batch, devices, accelerator, share):
    settings = resolved(batch_size=batch, devices=devices, accelerator=accelerator)
    assert smallest_share(items, settings) == share


@pytest.mark.parametrize("method", ["an", "auto"])
def test_a_last_batch_of_one_is_refused_before_anything_is_written(pictures, tmp_path, method):
    few = replace(load(pictures), train_rows=load(pictures).train_rows[:5])
    settings = Settings(
        method=method,
        backbone="resnet18",
        weights="none",
        size=32,
        epochs=1,
        batch_size=4,
        accelerator="cpu",
    )
    with refused("the last batch, or a process's share of it, has one"):
        fit(few, settings, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    fit(few, replace(settings, frozen_norm=True), tmp_path / "run", quiet=True)
