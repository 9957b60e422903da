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
    """A recorder that runs a step once and marks its outputs; its first calls may fail."""
    seen = {"failures": 0, "ours": []}

    def record(step, inputs, **_):
        ours = any("forward" in vars(module) for module in step.modules())
        seen["ours"].append(ours)
        step(*inputs)[0].sum().backward()
        if seen["failures"]:
            seen["failures"] -= 1
            raise RuntimeError("no such\n  kernel")
        return lambda x: ("replayed", step(x))

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", record)
    return seen


def forward(model, how="graphs", **more):
    lines = []
    step = FastForward(model, model, how, "32-true", detailed=False, report=lines.append, **more)
    return step, lines


def changed(model):
    return any("forward" in vars(module) for module in model.modules())


def test_a_recorded_step_is_replayed_for_batches_of_its_shape_and_leaves_no_trace(model, recorder):
    before = [buffer.clone() for buffer in model.buffers()]
    step, lines = forward(model)
    step.prepare(X)
    assert all(
        map(torch.equal, before, model.buffers())
    )  # running statistics are restored after recording
    assert all(parameter.grad is None for parameter in model.parameters()) and not changed(model)
    assert step(X)[0] == "replayed" and isinstance(step(X[:1].repeat(3, 1, 1, 1)), torch.Tensor)
    assert recorder["ours"] == [True] and "recorded in" in lines[0]


def test_scoring_is_by_our_kernels_once_they_are_recorded(model, recorder):
    step, _ = forward(model)
    with step.scoring():
        assert not changed(model)
    step.prepare(X)
    with step.scoring():
        assert changed(model)
    assert not changed(model)


@pytest.mark.parametrize(("failures", "count"), [(1, 2), (2, 2)])
def test_torchs_kernels_are_recorded_if_ours_fail_and_nothing_if_both_do(
    model, recorder, failures, count
):
    recorder["failures"] = failures
    step, lines = forward(model)
    outcome = step(X)
    assert recorder["ours"] == [True, False] and len(lines) == count
    assert lines[0] == "no CUDA graph with our kernels (RuntimeError: no such kernel)"
    assert isinstance(outcome, torch.Tensor) if failures == 2 else outcome[0] == "replayed"
    with step.scoring():
        assert not changed(model)


def test_our_kernels_can_be_left_out(model, recorder):
    step, _ = forward(model, fused=False)
    step.prepare(X)
    assert recorder["ours"] == [False]
    with step.scoring():
        assert not changed(model)


@pytest.mark.parametrize("how", ["none", "compile"])
def test_other_modes_record_nothing(model, recorder, how, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda step, **_: step)
    step, _ = forward(model, how)
    assert torch.allclose(step(X), model(X)) and recorder["ours"] == []
    with step.scoring():
        assert not changed(model)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("detailed", [False, True])
def test_the_compiled_step_returns_float32_as_fabric_does(model, monkeypatch, precision, detailed):
    monkeypatch.setattr(torch, "compile", lambda step, **_: step)
    step = FastForward(model, model, "compile", precision, detailed=detailed, report=print)
    outputs = step(X) if detailed else [step(X)]
    assert [part.dtype for part in outputs] == [torch.float32] * (2 if detailed else 1)
