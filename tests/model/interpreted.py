"""Compare our kernels with torch's operations on a CPU.

Run with TRITON_INTERPRET=1, which triton reads when the kernels are loaded.
"""

from __future__ import annotations

import copy
import itertools
import math
from unittest import mock

import torch
import torch.nn.functional as F
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from spml.model import Classifier
from spml.model.backbones import Backbone
from spml.model.kernels import fused
from spml.model.kernels import norm as norm_kernels
from spml.model.kernels.norm import NormAct

ACTIVATIONS = (lambda z: z, F.relu, F.relu6)


def as_pictures(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype).to(memory_format=torch.channels_last).requires_grad_()


def kernels() -> None:
    """Check value, gradients and running statistics over shapes, sums and activations."""
    shapes, dtypes = [(2, 5, 3, 3), (3, 70, 9, 7)], (torch.float32, torch.bfloat16)
    for shape, act, add, dtype in itertools.product(shapes, range(3), (False, True), dtypes):
        x = as_pictures(torch.randn(shape) * 3 + 5, dtype)
        residual = as_pictures(torch.randn(shape), dtype) if add else None
        weight, bias = (
            torch.rand(shape[1]).add(0.5).requires_grad_(),
            torch.randn(shape[1]).requires_grad_(),
        )
        moved = torch.randn(shape[1]), torch.rand(shape[1]), torch.tensor(3)
        meant = moved[0].clone(), moved[1].clone()
        y = NormAct.apply(x, residual, weight, bias, *moved, 0.1, 1e-5, act)
        leaves = [leaf for leaf in (x, residual, weight, bias) if leaf is not None]
        plain = [leaf.detach().float().requires_grad_() for leaf in leaves]
        z = F.batch_norm(plain[0], *meant, plain[-2], plain[-1], True, 0.1, 1e-5)
        z = z + plain[1] if add else z
        gradient = torch.randn(shape) * (
            (z.abs() > 0.05) & ((z - 6).abs() > 0.05)
        )  # excludes values that rounding decides
        z = ACTIVATIONS[act](z)
        z.backward(gradient)
        y.backward(gradient.to(dtype))
        near = (
            {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.2}
        )
        torch.testing.assert_close(y.float(), z, **near)
        torch.testing.assert_close(moved[0], meant[0])
        torch.testing.assert_close(moved[1], meant[1], rtol=1e-4, atol=1e-5)
        assert moved[2] == 4
        for ours, theirs in zip(leaves, plain, strict=True):
            torch.testing.assert_close(ours.grad.float(), theirs.grad, **near)


def running_statistics() -> None:
    """Check that scoring, without gradient, uses the running statistics."""
    fused._runs_on = lambda device: True
    shapes = [(2, 5, 3, 3), (1, 70, 9, 7)]
    for shape, act, add in itertools.product(
        shapes, (nn.Identity(), nn.ReLU(), nn.ReLU6()), (False, True)
    ):
        norm = nn.BatchNorm2d(shape[1]).eval()
        for part in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            nn.init.uniform_(part, 0.5, 2)
        before = norm.running_mean.clone(), norm.running_var.clone()
        x, residual = (
            torch.randn(shape).mul(5).to(memory_format=torch.channels_last) for _ in range(2)
        )
        with (
            torch.inference_mode(),
            mock.patch.object(norm_kernels, "scored", wraps=norm_kernels.scored) as used,
        ):
            y = fused.norm_act(norm, x, act, residual if add else None)
        assert used.call_count == 1
        torch.testing.assert_close(y, act(norm(x) + residual * add))
        assert torch.equal(norm.running_mean, before[0])
        assert torch.equal(norm.running_var, before[1])
        assert fused.norm_act(
            norm, x, act
        ).requires_grad  # with a gradient, torch's own norm is used


def large_mean() -> None:
    """Check that a mean far from 0 does not cancel the deviation."""
    x = as_pictures(torch.randn(2, 8, 16, 16) + 3000, torch.float32)
    moved = torch.zeros(8), torch.zeros(8), torch.tensor(0)
    y = NormAct.apply(x, None, torch.ones(8), torch.zeros(8), *moved, 1.0, 1e-5, 0)
    torch.testing.assert_close(
        moved[1], x.detach().double().var((0, 2, 3)).float(), rtol=1e-3, atol=0
    )
    torch.testing.assert_close(y.std((0, 2, 3)), torch.ones(8), rtol=2e-3, atol=0)


def not_a_number() -> None:
    """Check that the activation does not turn NaN into zero, so that divergence is visible."""
    x = as_pictures(torch.randn(2, 3, 4, 4).index_fill(1, torch.tensor(1), math.nan), torch.float32)
    for act in range(3):
        y = NormAct.apply(
            x,
            None,
            torch.ones(3),
            torch.zeros(3),
            torch.zeros(3),
            torch.ones(3),
            torch.tensor(0),
            0.1,
            1e-5,
            act,
        )
        assert y[:, 1].isnan().all() and y[:, [0, 2]].isfinite().all()


def convolutions() -> None:
    """Check value and gradients for both kinds of padding, over odd and even shapes."""
    fused._runs_on = lambda device: True
    kinds = (nn.Conv2d, 1), (nn.Conv2d, 2), (Conv2dSame, 2)
    shapes, dtypes = [(2, 5, 9, 7), (1, 40, 6, 11), (3, 3, 8, 8)], (torch.float32, torch.bfloat16)
    for shape, side, (kind, stride), dtype in itertools.product(shapes, (3, 5), kinds, dtypes):
        conv = kind(
            shape[1], shape[1], side, stride, padding=side // 2, groups=shape[1], bias=False
        )
        assert fused._is_depthwise(conv)
        x = as_pictures(torch.randn(shape), dtype)
        y = fused.convolve(conv, x)
        plain = x.detach().float().requires_grad_()
        weight = conv.weight.detach().to(dtype).float().requires_grad_()
        zeros = (
            [side // 2] * 4 if kind is nn.Conv2d else _same(shape[3], side) + _same(shape[2], side)
        )
        z = F.conv2d(F.pad(plain, zeros), weight, stride=stride, groups=shape[1])
        gradient = torch.randn_like(z).to(dtype)
        z.backward(gradient.float())
        y.backward(gradient)
        exact = dtype == torch.float32
        near = {"rtol": 1e-4, "atol": 1e-4} if exact else {"rtol": 0.02, "atol": 0.05}
        torch.testing.assert_close(y.float(), z, **near)
        torch.testing.assert_close(x.grad.float(), plain.grad, **near)
        ours = exact or stride == 2 or (side == 3 and shape[1] <= 32)  # else torch rounds the sums
        near = {"rtol": 1e-4, "atol": 1e-3} if ours else {"rtol": 0.02, "atol": 0.05}
        torch.testing.assert_close(conv.weight.grad, weight.grad, **near)
    narrow = (
        nn.Conv2d(4, 4, 3, 1, 0, groups=4, bias=False),
        nn.Conv2d(4, 8, 3, 2, 1, groups=4, bias=False),
    )
    for other in (
        *narrow,
        nn.Conv2d(4, 4, 3, 2, 1, groups=4),
        nn.Conv2d(4, 4, 7, 2, 3, groups=4, bias=False),
    ):
        assert not fused._is_depthwise(other)


def stems() -> None:
    """Check value and gradient of a network's first convolution."""
    fused._runs_on = lambda device: True
    kinds, dtypes = (
        (nn.Conv2d, Conv2dSame),
        (torch.float32, torch.float16),
    )  # the interpreter has no products of bfloat16
    for shape, out, kind, dtype in itertools.product(
        [(2, 3, 9, 26), (3, 1, 20, 11)], (5, 32), kinds, dtypes
    ):
        conv = kind(shape[1], out, 3, 2, padding=1, bias=False)
        assert fused._is_stem(conv) and not fused._is_depthwise(conv)
        x = torch.randn(shape).to(dtype).to(memory_format=torch.channels_last)
        y = fused.convolve(conv, x)
        weight = conv.weight.detach().to(dtype).float().requires_grad_()
        zeros = [1] * 4 if kind is nn.Conv2d else _same(shape[3], 3) + _same(shape[2], 3)
        z = F.conv2d(F.pad(x.float(), zeros), weight, stride=2)
        gradient = torch.randn_like(z).to(dtype)
        z.backward(gradient.float())
        y.backward(gradient)
        near = (
            {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.05}
        )
        torch.testing.assert_close(y.float(), z, **near)
        torch.testing.assert_close(conv.weight.grad, weight.grad, rtol=1e-4, atol=1e-3)
    pictures = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    fused.convolve(nn.Conv2d(3, 8, 3, 2, bias=False), pictures).sum().backward()
    assert pictures.grad.abs().sum() > 0  # by torch: ours has no such gradient
    for other in (
        nn.Conv2d(4, 8, 3, 2, bias=False),
        nn.Conv2d(3, 8, 3, bias=False),
        nn.Conv2d(3, 65, 3, 2, bias=False),
    ):
        assert not fused._is_stem(other)


def _same(size: int, side: int) -> list[int]:
    zeros = max(2 * ((size + 1) // 2 - 1) + side - size, 0)
    return [zeros // 2, zeros - zeros // 2]


def networks() -> None:
    """Check that whole backbones give torch's results and are unchanged afterwards."""
    fused._runs_on = lambda device: True
    halved = Conv2dSame(8, 8, 5, 2, groups=8, bias=False)
    layers = (
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        BatchNormAct2d(8, act_layer=nn.ReLU6),
        halved,
        nn.Conv2d(8, 4, 3),
        BatchNormAct2d(4),
    )
    inside = Classifier(Backbone(nn.Sequential(*layers), 4, (0.5,) * 3, (0.2,) * 3), 3)
    for name, plain in {
        "inside": inside,
        **{n: Classifier.build(n, 3) for n in ("resnet10t", "resnet14t")},
    }.items():
        torch.manual_seed(0)
        other = copy.deepcopy(plain.train())
        x = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
        expected = plain(x)
        expected.sum().backward()
        with fused.our_kernels(other) as count:
            assert count > 0, name
            got = other(x)
        got.sum().backward()
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
        for a, b in zip(other.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        for (key, a), (_, b) in zip(
            other.named_parameters(), plain.named_parameters(), strict=True
        ):
            size_of = b.grad.norm() + 1e-3
            assert (a.grad - b.grad).norm() / size_of < 0.05, (name, key)
        assert not [module for module in other.modules() if "forward" in vars(module)]
        plain.eval()
        other.eval().load_state_dict(plain.state_dict())
        with torch.inference_mode(), fused.our_kernels(other):
            torch.testing.assert_close(other(x), plain(x), rtol=1e-3, atol=1e-4)


def compilation() -> None:
    """Check that kernels compile in a thread and that `our_kernels` waits for it."""
    fused.compile_ahead(torch.float32, "cpu")
    thread = fused._compiling[0]
    with fused.our_kernels(Classifier.build("resnet10t", 3)):
        assert not thread.is_alive() and not fused._compiling


if __name__ == "__main__":
    torch.manual_seed(0)
    compilation()
    kernels()
    running_statistics()
    large_mean()
    not_a_number()
    convolutions()
    stems()
    networks()
    print("as torch has it")
