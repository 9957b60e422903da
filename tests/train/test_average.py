"""The average of the weights."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from spml.files import read_json
from spml.train.state import WeightAverage
from tests.conftest import assert_resumes, failing, refused, same


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
