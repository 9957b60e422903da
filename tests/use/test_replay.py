import pytest
import torch

from spml.use.replay import Replayed, record


def double(x):
    return 2 * x


class Recorder:
    """Notes what is recorded and replayed."""

    def __init__(self, error=None):
        self.error, self.recorded, self.replayed = error, [], []

    def __call__(self, score, x):
        self.recorded.append(tuple(x.shape))
        if self.error is not None:
            raise self.error

        def replay(x):
            self.replayed.append(tuple(x.shape))
            return score(x)

        return replay


@pytest.fixture
def as_if_on_a_gpu(monkeypatch):
    """Tensors that are asked for on a GPU are made here."""
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, device, **how: zeros(*shape, **how))


def test_batches_of_the_prepared_shape_are_replayed_and_others_run_as_they_are(as_if_on_a_gpu):
    recorder = Recorder()
    score = Replayed(double, "cuda", recorder)
    assert torch.equal(score(torch.ones(4, 2)), torch.full((4, 2), 2.0)) and not recorder.replayed
    score.prepare((4, 2))
    for count in (4, 3, 4, 1):
        x = torch.rand(count, 2)
        assert torch.equal(score(x), 2 * x)
    assert recorder.recorded == [(4, 2)] and recorder.replayed == [(4, 2)] * 2


@pytest.mark.parametrize("error", [RuntimeError("operation not permitted when stream is capturing"), MemoryError()])
def test_what_cannot_be_recorded_is_run_as_it_is(as_if_on_a_gpu, error):
    score = Replayed(double, "cuda", Recorder(error))
    score.prepare((4, 2))
    x = torch.rand(4, 2)
    assert torch.equal(score(x), 2 * x)


def test_nothing_is_recorded_on_a_cpu():
    recorder = Recorder()
    score = Replayed(double, "cpu", recorder)
    score.prepare((4, 2))
    assert score(torch.ones(4, 2)).eq(2).all() and not recorder.recorded


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_gives_what_the_model_gives():
    model = torch.nn.Linear(3, 5).cuda()
    with torch.inference_mode():
        x = [torch.rand(4, 3, device="cuda") for _ in range(3)]
        replay = record(model, x[0])
        found = [replay(batch) for batch in x]
        for batch, outcome in zip(x, found, strict=True):
            torch.testing.assert_close(outcome, model(batch))
