"""CUDA graphs of a step and of scoring, with stand-ins for the recording on a GPU."""

import pytest
import torch

from spml.model import Classifier
from spml.model.graphs import FastForward, Replayed, record_scoring

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


def double(x):
    return 2 * x


SHAPE = (4, 3, 2, 2)


class Recorder:
    """A recorder that logs recordings and replays."""

    def __init__(self, error=None):
        self.error, self.recorded, self.replayed = error, [], []

    def __call__(self, score, x):
        assert x.is_contiguous(memory_format=torch.channels_last)
        assert not x.is_contiguous()  # as the loader gives batches
        self.recorded.append(tuple(x.shape))
        if self.error is not None:
            raise self.error

        def replay(x):
            self.replayed.append(tuple(x.shape))
            return score(x)

        return replay


@pytest.fixture
def as_if_on_a_gpu(monkeypatch):
    """Create tensors on the CPU when a GPU is requested."""
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, device, **how: zeros(*shape, **how))


def test_batches_of_the_prepared_shape_are_replayed_and_others_run_as_they_are(as_if_on_a_gpu):
    recorder = Recorder()
    score = Replayed(double, "cuda", record=recorder)
    assert torch.equal(score(torch.ones(SHAPE)), torch.full(SHAPE, 2.0)) and not recorder.replayed
    score.prepare(SHAPE)
    for count in (4, 3, 4, 1):
        x = torch.rand(count, *SHAPE[1:])
        assert torch.equal(score(x), 2 * x)
    assert recorder.recorded == [SHAPE] and recorder.replayed == [SHAPE] * 2


@pytest.mark.parametrize(
    "error", [RuntimeError("operation not permitted when stream is capturing"), MemoryError()]
)
def test_functions_that_cannot_be_recorded_run_unrecorded(as_if_on_a_gpu, error):
    lines = []
    score = Replayed(double, "cuda", lines.append, Recorder(error))
    score.prepare(SHAPE)
    assert lines == [f"no CUDA graph ({type(error).__name__}: {error})"]
    x = torch.rand(SHAPE)
    assert torch.equal(score(x), 2 * x)


def test_nothing_is_recorded_on_a_cpu():
    recorder = Recorder()
    score = Replayed(double, "cpu", record=recorder)
    score.prepare(SHAPE)
    assert score(torch.ones(SHAPE)).eq(2).all() and not recorder.recorded


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_gives_what_the_model_gives():
    model = torch.nn.Linear(3, 5).cuda()
    with torch.inference_mode():
        x = [torch.rand(4, 3, device="cuda") for _ in range(3)]
        replay = record_scoring(model, x[0])
        outputs = [replay(batch) for batch in x]
        for batch, outcome in zip(x, outputs, strict=True):
            torch.testing.assert_close(outcome, model(batch))
