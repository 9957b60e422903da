import pytest
import torch

from spml.use.replay import FIRST, Replayed, record


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


def test_the_first_shape_that_comes_often_is_recorded_once_and_others_are_run_as_they_are():
    recorder = Recorder()
    score = Replayed(double, recorder)
    for count in (4, 4, 3, 4, 4, 3, 3, 3, 4):
        x = torch.rand(count, 2)
        assert torch.equal(score(x), 2 * x)
    assert recorder.recorded == [(4, 2)]
    assert recorder.replayed == [(4, 2)] * (5 - FIRST)


@pytest.mark.parametrize("error", [RuntimeError("operation not permitted when stream is capturing"), MemoryError()])
def test_what_cannot_be_recorded_is_run_as_it_is_and_not_tried_again(error):
    recorder = Recorder(error)
    score = Replayed(double, recorder)
    for _ in range(6):
        x = torch.rand(4, 2)
        assert torch.equal(score(x), 2 * x)
    assert recorder.recorded == [(4, 2)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_gives_what_the_model_gives():
    model = torch.nn.Linear(3, 5).cuda()
    with torch.inference_mode():
        x = [torch.rand(4, 3, device="cuda") for _ in range(3)]
        model(x[0])
        replay = record(model, x[0])
        found = [replay(batch) for batch in x]
        for batch, outcome in zip(x, found, strict=True):
            torch.testing.assert_close(outcome, model(batch))
