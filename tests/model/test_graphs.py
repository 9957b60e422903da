"""The forward pass of a step, with a stand-in for the recording on a GPU."""

import pytest
import torch

from spml.model import Classifier
from spml.model.graphs import FastForward

X = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Classifier.build("test_efficientnet", 3).train()


@pytest.fixture
def recorder(monkeypatch):
    """A recorder that runs a step once and marks its outputs; it fails if asked to."""
    seen = {"fails": False, "calls": 0}

    def record(step, inputs, **_):
        seen["calls"] += 1
        step(*inputs)[0].sum().backward()
        if seen["fails"]:
            raise RuntimeError("no such\n  kernel")
        return lambda x: ("replayed", step(x))

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", record)
    return seen


def forward(model, how="graphs"):
    lines = []
    return FastForward(model, model, how, "32-true", detailed=False, report=lines.append), lines


def check_untouched(model, before):
    assert all(map(torch.equal, before, model.buffers()))  # running statistics are restored
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_recorded_step_is_replayed_for_batches_of_its_shape_and_leaves_no_trace(model, recorder):
    before = [buffer.clone() for buffer in model.buffers()]
    step, lines = forward(model)
    step.prepare(X)
    check_untouched(model, before)
    assert step(X)[0] == "replayed" and isinstance(step(X[:1].repeat(3, 1, 1, 1)), torch.Tensor)
    assert recorder["calls"] == 1 and "recorded in" in lines[0]


def test_a_step_that_cannot_be_recorded_runs_unrecorded(model, recorder):
    recorder["fails"], before = True, [buffer.clone() for buffer in model.buffers()]
    step, lines = forward(model)
    step.prepare(X)
    check_untouched(model, before)
    assert isinstance(step(X), torch.Tensor) and recorder["calls"] == 1
    assert lines == ["no CUDA graph (RuntimeError: no such kernel)"]


@pytest.mark.parametrize("how", ["none", "compile"])
def test_other_modes_record_nothing(model, recorder, how, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda step, **_: step)
    step, _ = forward(model, how)
    assert torch.allclose(step(X), model(X)) and recorder["calls"] == 0


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("detailed", [False, True])
def test_the_compiled_step_returns_float32_as_fabric_does(model, monkeypatch, precision, detailed):
    monkeypatch.setattr(torch, "compile", lambda step, **_: step)
    step = FastForward(model, model, "compile", precision, detailed=detailed, report=print)
    outputs = step(X) if detailed else [step(X)]
    assert [part.dtype for part in outputs] == [torch.float32] * (2 if detailed else 1)
