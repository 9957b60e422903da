import torch

from spml import losses
from spml.keyed import key
from spml.model import Classifier
from spml.train import randomness
from spml.train.progress import Parts, Progress


class Drawing(losses.Method):
    """Draws a number when an epoch begins."""

    def begin_epoch(self, epoch, epochs):
        self.begun = (epoch, epochs, torch.rand(()).item())


def parts():
    model = Classifier.build("linear", 2, features=3)
    return Parts(model, Drawing(), [torch.optim.Adam(model.parameters())], torch.device("cpu"))


def test_an_epoch_that_was_broken_off_begins_with_its_own_draws_and_goes_on():
    first, second = parts(), parts()
    first.classifier(torch.ones(1, 3)).sum().backward()
    first.optimizers[0].step()
    state = Progress(within={"total": torch.zeros(())}).state(2, first, 7.0)
    following = torch.rand(())
    taken = Progress()
    assert taken.take_up(state, second, seed=5, epochs=9) == 2
    assert torch.equal(torch.rand(()), following)
    randomness.seed(key(5, 3))
    assert second.method.begun == (3, 9, torch.rand(()).item())
    assert taken.spent == {"train_images": 0, "train_seconds": 0.0, "seconds": 7.0}
    weights = second.classifier.state_dict(), first.classifier.state_dict()
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())
    assert (
        second.optimizers[0].state_dict()["state"].keys()
        == first.optimizers[0].state_dict()["state"].keys()
        != set()
    )
