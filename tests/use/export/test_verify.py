"""Agreement of an exported model with the original."""

import pytest
import torch

from spml.errors import UserError
from spml.model import load_model
from spml.use.export.export import Portable
from spml.use.export.verify import verify


def test_many_batch_sizes_and_picture_sizes_are_checked(make_model, tmp_path):
    model, info = load_model(make_model())
    portable, batches = Portable(model, info).eval(), []

    def run(x):
        batches.append(x)
        return portable(x)

    assert verify(model, info, run, tmp_path / "m") < 1e-6
    shapes = ((16, 16), (1, 1), (37, 90), (480, 360))
    expected = [(batch, *shape, 3) for batch in (1, 2, 5) for shape in shapes]
    assert [tuple(x.shape) for x in batches] == expected
    assert all(x.dtype == torch.uint8 for x in batches)
    picture = batches[3]  # not one grey
    assert picture.min() < 60 and picture.max() > 190 and picture.float().std() > 20
    assert not torch.equal(batches[4][0], batches[4][1])
    features, about = load_model(make_model("features", features=4))
    assert verify(features, about, Portable(features, about).eval(), tmp_path / "m") < 1e-6


@pytest.mark.parametrize(
    ("bias", "part", "off", "refused"),
    [
        (0.0, 1, 5e-5, False),
        (0.0, 1, -5e-5, False),
        (0.0, 1, 2e-4, True),
        (0.0, 1, -2e-4, True),
        (0.0, 0, 5e-5, False),
        (0.0, 0, 2e-4, True),
        (100.0, 0, 5e-3, False),  # a ten-thousandth of a large logit is more
        (100.0, 0, 2e-2, True),
    ],
)
def test_the_tolerance_is_a_ten_thousandth(make_model, tmp_path, bias, part, off, refused):
    model, info = load_model(make_model(features=4))
    with torch.no_grad():
        model.head.weight.mul_(0.01)
        model.head.bias.fill_(bias)
    portable = Portable(model, info).eval()

    def run(x):
        outputs = list(portable(x))
        outputs[part] = outputs[part] + off * (torch.arange(3) == 2)  # one class of three
        return tuple(outputs)

    if refused:
        with pytest.raises(UserError, match="not written, as it differs from the model"):
            verify(model, info, run, tmp_path / "m")
    else:
        assert verify(model, info, run, tmp_path / "m") == pytest.approx(abs(off) * part, abs=1e-6)
