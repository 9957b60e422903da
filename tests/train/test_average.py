"""The average of the weights."""

import os
import signal

import numpy as np
import pytest
import torch
from torch import nn

from spml.data import load
from spml.errors import Interruption
from spml.files import read_json
from spml.train import Settings, fit
from spml.train.state import WeightAverage
from tests.conftest import refused

SMALL = {"epochs": 2, "accelerator": "cpu", "method": "an", "ema": 0.9}


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


def test_without_an_average_a_run_is_as_before(tmp_path):
    digits = load("digits")
    for name, ema in (("a", 0.0), ("b", 0.0), ("c", 0.9)):
        fit(digits, Settings(**{**SMALL, "epochs": 1, "ema": ema}), tmp_path / name, quiet=True)
    weights = [(tmp_path / name / "best/model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]


def test_an_averaged_run_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    digits, settings = load("digits"), Settings(**SMALL)
    fit(digits, settings, tmp_path / "whole", quiet=True)

    first = {"left": 130}  # batches until the user interrupts, in the second epoch

    def advance(self, count, loss=None):
        first["left"] -= 1
        if first["left"] == 0:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("spml.train.display.Display.advance", advance)
    with pytest.raises(Interruption):
        fit(digits, settings, tmp_path / "parts", quiet=True)
    monkeypatch.undo()
    fit(digits, settings, tmp_path / "parts", resume=True, quiet=True)
    assert read_json(tmp_path / "whole/config.json")["ema"] == 0.9
    assert np.isfinite(read_json(tmp_path / "whole/result.json")["val_map"])
    for name in ("history.jsonl", "best/model.safetensors"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("ema", [-0.1, 1.0])
def test_a_decay_outside_its_range_is_refused(tmp_path, ema):
    with refused("decay"):
        fit(load("digits"), Settings(method="an", ema=ema), tmp_path / "run", quiet=True)
