"""The inputs of a method in a training step."""

import numpy as np
import pytest
import torch

from spml import losses
from spml.train.device import Processes
from spml.train.step import Step
from tests.train.settings import resolved

ROWS = np.array([4, 2, 7])
SHOWN = ("logits", "views", "features")
PICTURES = torch.arange(3 * 3 * 8 * 8, dtype=torch.uint8).view(3, 3, 8, 8)


class Noting(losses.Method):
    """Records its inputs."""

    def __init__(self, needs=()):
        super().__init__()
        self.needs, self.inputs, self.boxes = frozenset(needs), {}, None

    def forward(self, logits, observed, **inputs):
        self.inputs = {"logits": logits, **inputs}
        return logits.sum()


class Seeing(Noting):
    """Records the boxes."""

    def see(self, boxes):
        self.boxes = boxes


class Model:
    """Records its input; logits are positions in the batch, features ten times that."""

    def __init__(self, detailed=False):
        self.detailed, self.shown, self.prepared = detailed, None, None

    def __call__(self, x):
        self.shown = x
        places = torch.arange(float(len(x)))[:, None]
        return (places, 10 * places) if self.detailed else places

    def prepare(self, x):
        self.prepared = x


def step(method, model, x=PICTURES, **settings):
    built = Step(model, method, resolved(**{"epochs": 8, **settings}), Processes())
    built.prepare(x)
    built.loss(x, torch.zeros(3, 1), torch.from_numpy(ROWS), ROWS, 5)
    return method.inputs


def test_a_method_gets_epoch_and_rows_and_nothing_it_does_not_need():
    inputs = step(Noting(), model := Model())
    assert (inputs["epoch"], inputs["epochs"], inputs["index"].tolist()) == (5, 8, ROWS.tolist())
    assert set(inputs) == {"logits", "index", "epoch", "epochs"}
    assert torch.equal(model.shown, PICTURES) and torch.equal(model.prepared, PICTURES)


@pytest.mark.parametrize("detailed", [False, True])
def test_two_views_pass_through_the_model_in_one_batch(detailed):
    inputs = step(Noting({"views"}), model := Model(detailed))
    assert len(model.shown) == len(model.prepared) == 6 and torch.equal(model.shown[:3], PICTURES)
    numbers = {name: value.flatten().tolist() for name, value in inputs.items() if name in SHOWN}
    assert numbers["logits"] == [0, 1, 2] and numbers["views"] == [3, 4, 5]
    assert numbers.get("features") == ([0, 10, 20, 30, 40, 50] if detailed else None)


def test_feature_vectors_are_not_mirrored():
    vectors = torch.arange(6.0).view(3, 2)
    step(Seeing(), model := Model(), vectors, flip=True)
    assert torch.equal(model.shown, vectors)


def test_a_method_that_sees_boxes_gets_them_mirrored_like_the_pictures():
    for flip in (False, True):
        step(method := Seeing(), model := Model(), flip=flip)
        for box, shown, picture in zip(method.boxes, model.shown, PICTURES, strict=True):
            assert sorted(box.tolist()) == [0, 0, 1, 1]
            assert torch.equal(shown, picture.flip(-1) if box[0] > box[2] else picture)
    assert (method.boxes[:, 0] > method.boxes[:, 2]).any()
