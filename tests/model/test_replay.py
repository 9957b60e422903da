import pytest
import torch

from spml.model.graphs import Replayed, record_scoring


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
