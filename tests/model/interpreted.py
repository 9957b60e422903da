"""Our kernels against torch's operations, on a CPU: run with TRITON_INTERPRET=1, which is read when they are loaded."""

from __future__ import annotations

import copy
import itertools
import math

import torch
import torch.nn.functional as F
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from spml.model import Classifier, fused
from spml.model.backbones import Backbone
from spml.model.norm_kernels import NormAct

ACTIVATIONS = (lambda z: z, F.relu, F.relu6)


def as_pictures(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype).to(memory_format=torch.channels_last).requires_grad_()


def kernels() -> None:
    """Value, gradients and running statistics, with and without a sum and each activation, over odd and even shapes."""
    shapes, dtypes = [(2, 5, 3, 3), (3, 70, 9, 7)], (torch.float32, torch.bfloat16)
    for shape, act, add, dtype in itertools.product(shapes, range(3), (False, True), dtypes):
        x = as_pictures(torch.randn(shape) * 3 + 5, dtype)
        residual = as_pictures(torch.randn(shape), dtype) if add else None
        weight, bias = torch.rand(shape[1]).add(0.5).requires_grad_(), torch.randn(shape[1]).requires_grad_()
        moved = torch.randn(shape[1]), torch.rand(shape[1]), torch.tensor(3)
        meant = moved[0].clone(), moved[1].clone()
        y = NormAct.apply(x, residual, weight, bias, *moved, 0.1, 1e-5, act)
        leaves = [leaf for leaf in (x, residual, weight, bias) if leaf is not None]
        plain = [leaf.detach().float().requires_grad_() for leaf in leaves]
        z = F.batch_norm(plain[0], *meant, plain[-2], plain[-1], True, 0.1, 1e-5)
        z = z + plain[1] if add else z
        gradient = torch.randn(shape) * ((z.abs() > 0.05) & ((z - 6).abs() > 0.05))  # not where rounding decides
        z = ACTIVATIONS[act](z)
        z.backward(gradient)
        y.backward(gradient.to(dtype))
        near = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.2}
        torch.testing.assert_close(y.float(), z, **near)
        torch.testing.assert_close(moved[0], meant[0])
        torch.testing.assert_close(moved[1], meant[1], rtol=1e-4, atol=1e-5)
        assert moved[2] == 4
        for ours, theirs in zip(leaves, plain, strict=True):
            torch.testing.assert_close(ours.grad.float(), theirs.grad, **near)


def large_mean() -> None:
    """Sums are measured from a value of the batch: a mean far from 0 does not eat the deviation."""
    x = as_pictures(torch.randn(2, 8, 16, 16) + 3000, torch.float32)
    moved = torch.zeros(8), torch.zeros(8), torch.tensor(0)
    y = NormAct.apply(x, None, torch.ones(8), torch.zeros(8), *moved, 1.0, 1e-5, 0)
    torch.testing.assert_close(moved[1], x.detach().double().var((0, 2, 3)).float(), rtol=1e-3, atol=0)
    torch.testing.assert_close(y.std((0, 2, 3)), torch.ones(8), rtol=2e-3, atol=0)


def not_a_number() -> None:
    """It is not turned into a zero by the activation, so that a run that has gone wrong is seen."""
    x = as_pictures(torch.randn(2, 3, 4, 4).index_fill(1, torch.tensor(1), math.nan), torch.float32)
    for act in range(3):
        y = NormAct.apply(
            x, None, torch.ones(3), torch.zeros(3), torch.zeros(3), torch.ones(3), torch.tensor(0), 0.1, 1e-5, act
        )
        assert y[:, 1].isnan().all() and y[:, [0, 2]].isfinite().all()


def networks() -> None:
    """Whole backbones give what they give without, and are left as they were."""
    fused._runs_on = lambda device: True
    layers = nn.Conv2d(3, 8, 3), BatchNormAct2d(8, act_layer=nn.ReLU6), nn.Conv2d(8, 4, 3), BatchNormAct2d(4)
    inside = Classifier(Backbone(nn.Sequential(*layers), 4, (0.5,) * 3, (0.2,) * 3), 3)
    for name, plain in {"inside": inside, **{n: Classifier.build(n, 3) for n in ("resnet10t", "resnet14t")}}.items():
        torch.manual_seed(0)
        other = copy.deepcopy(plain.train())
        x = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
        expected = plain(x)
        expected.sum().backward()
        with fused.fused_norms(other) as count:
            assert count > 0, name
            got = other(x)
        got.sum().backward()
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
        for a, b in zip(other.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        for (key, a), (_, b) in zip(other.named_parameters(), plain.named_parameters(), strict=True):
            size_of = b.grad.norm() + 1e-3
            assert (a.grad - b.grad).norm() / size_of < 0.05, (name, key)
        assert not [module for module in other.modules() if "forward" in vars(module)]


def ahead() -> None:
    """Kernels are compiled beside the caller, and waited for by whoever uses them."""
    fused.compile_ahead(torch.float32, "cpu")
    thread = fused._compiling[0]
    with fused.fused_norms(Classifier.build("resnet10t", 3)):
        assert not thread.is_alive() and not fused._compiling


if __name__ == "__main__":
    torch.manual_seed(0)
    ahead()
    kernels()
    large_mean()
    not_a_number()
    networks()
    print("as torch has it")
