import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from spml.model import Classifier
from spml.model.kernels.fused import norm_act, our_kernels

PROGRAM = Path(__file__).with_name("interpreted.py")


@pytest.mark.slow
def test_kernels_and_whole_networks_give_what_torch_gives() -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, PROGRAM],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "as torch has it"


@pytest.mark.parametrize(
    "backbone", ["tiny", "test_resnet", "resnet10t", "resnet14t", "test_efficientnet"]
)
def test_our_kernels_change_nothing_on_a_cpu(backbone: str) -> None:
    torch.manual_seed(0)
    model = Classifier.build(backbone, 3).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # no two of them alike
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias)
    x = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    expected = model(x)
    with our_kernels(model):
        assert torch.equal(model(x), expected)
    assert not [module for module in model.modules() if "forward" in vars(module)]


def test_modules_are_set_back_when_recording_fails() -> None:
    model = Classifier.build("test_resnet", 3)
    with pytest.raises(RuntimeError, match="out of memory"), our_kernels(model):
        raise RuntimeError("out of memory")
    assert not [module for module in model.modules() if "forward" in vars(module)]


def test_without_our_kernels_sum_and_activation_still_follow() -> None:
    norm, x, residual = nn.BatchNorm2d(2).eval(), torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 3)
    expected = torch.relu(norm(x) + residual)
    assert torch.equal(norm_act(norm, x, nn.ReLU(), residual), expected)
