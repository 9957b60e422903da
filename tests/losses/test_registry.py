"""Losses by name: options, errors, custom losses, copies and imports."""

import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

from spml import losses
from spml.losses.registry import CallableLoss, summary

from .common import NAMES, build, random_batch, value_and_gradient

OWN = '''
import torch
from torch import nn

def plain(logits, observed):
    return (logits * observed).mean()

def scaled(logits, observed, scale=2.0, epoch=1):
    """A loss itself.

    Args:
        scale: how much.
    """
    return scale * epoch * logits.mean()

def anything(logits, observed, **call):
    return logits.new_tensor(sorted(call) == ["epoch", "epochs", "index"])

def factory(power: float):
    return lambda logits, observed, index=None: logits.mean() ** power + index.sum()

class Whole(nn.Module):
    needs = frozenset({"index"})

    def __init__(self, bias=0.5):
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(bias))

    def forward(self, logits, observed, *, epoch=1):
        return logits.mean() + self.bias

number = 3
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_losses.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_losses", raising=False)
    return "own_losses"


LOGITS, OBSERVED = random_batch()
CALL = {"epoch": 3, "epochs": 8, "index": torch.arange(5)}
MEAN = LOGITS.mean().item()


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_a_default_or_is_a_need_and_is_explained(name):
    for option in losses.options(name):
        assert option.help, f"{name}.{option.name} is not explained"
    assert summary(name).endswith(".")
    assert isinstance(losses.needs(name), frozenset)
    assert losses.needs(name) <= {"items", "index", "features", "views", "pass"}


def test_options_come_from_the_signature():
    options = {option.name: option for option in losses.options("gr")}
    assert list(options)[:4] == ["variant", "q1", "q2", "q3"]
    assert options["w"].default == (0.0, 2.0)
    start = '"official": w and b have covered the fraction (epoch - 1) / epochs of'
    assert options["schedule"].help.startswith(start)
    assert losses.needs("gr") == frozenset()


def test_a_custom_function_gets_only_the_arguments_it_names(own):
    plain = losses.create(f"{own}:plain")(LOGITS, OBSERVED, **CALL)
    assert plain.item() == pytest.approx((LOGITS * OBSERVED).mean().item())
    scaled = losses.create(f"{own}:scaled", scale=5.0)
    assert scaled(LOGITS, OBSERVED, **CALL).item() == pytest.approx(15 * MEAN)
    (scale,) = losses.options(f"{own}:scaled")
    assert (scale.name, scale.help) == ("scale", "how much.")
    assert losses.create(f"{own}:anything")(LOGITS, OBSERVED, **CALL).item() == 1
    with pytest.raises(ValueError, match=r"scaled has no option 'scal'; 'scale'\?"):
        losses.create(f"{own}:scaled", scal=1)


def test_custom_factories_and_classes_are_accepted(own):
    with pytest.raises(ValueError, match="factory needs power"):
        losses.create(f"{own}:factory")
    loss = losses.create(f"{own}:factory", power=2)
    assert isinstance(loss, nn.Module)
    assert loss(LOGITS, OBSERVED, **CALL).item() == pytest.approx(MEAN**2 + 10)
    whole = losses.create(f"{own}:Whole", bias=1.5)
    assert whole(LOGITS, OBSERVED, **CALL).item() == pytest.approx(MEAN + 1.5)
    assert list(whole.state_dict()) == ["function.bias"]
    assert losses.needs(f"{own}:Whole") == {"index"}


def cross_entropy(logits, observed):
    return nn.functional.binary_cross_entropy_with_logits(logits, observed)


def test_a_custom_module_survives_pickling():
    loss = pickle.loads(pickle.dumps(CallableLoss(cross_entropy, {})))
    assert loss(LOGITS, OBSERVED.double().clamp(min=0), epoch=1).isfinite()


def test_per_class_parameters_are_settings_not_state_and_move_with_the_module():
    loss = losses.create("gr", w=[0.0, 1.0, 2.0])
    assert loss.state_dict() == {}
    assert [buffer.shape for buffer in loss.buffers()] == [torch.Size([3])] * 2


def test_repr_shows_the_formulas_that_run():
    text = repr(losses.create("gr", w=(0, 10), q3=1.5))
    for part in ("w = 0→10", "q = 1.5", "reduction=mean", "μ = 0.5→0.8", "lag=1"):
        assert part in text


def test_only_full_trains_on_complete_labels():
    sources = {name: build(name, OBSERVED).method.trains_on for name in NAMES}
    assert {name for name, source in sources.items() if source == "complete"} == {"full"}


def test_losses_import_no_other_package():
    code = (
        "import sys, spml.losses as l; l.create('gr'); "
        "print(*(m for m in sys.modules if m.startswith('spml')))"
    )
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert loaded and {name for name in loaded if not name.startswith("spml.losses")} == {"spml"}


@pytest.mark.parametrize("name", [name for name in NAMES if not losses.needs(name)])
def test_value_and_gradient_equal_those_of_backward(name):
    logits, observed = random_batch()
    expected, slope = value_and_gradient(build(name, observed), logits, observed, epoch=3, epochs=4)
    both = losses.value_and_gradient(build(name, observed))
    value, gradient = both(logits, observed, epoch=3, epochs=4)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient, slope)
