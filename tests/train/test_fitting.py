"""The parts of a run, and their learning rates."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from spml import losses
from spml.model import Classifier
from spml.train import Settings, fit
from spml.train.fitting import example, make_method, make_model
from spml.train.resolve import resolve
from spml.train.step import optimizer_for
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
