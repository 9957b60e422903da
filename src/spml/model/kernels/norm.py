"""Batch norm with the sum and activation that follow, in few passes: kernels for NHWC pictures."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, WIDE, WARPS = 64, 64, 4  # positions, channels and warps of a tile
SUMMED, SUMMING = 64, 8  # positions and warps of a tile in a loop that sums over tiles
STAGES, PROGRAMS = 3, 264  # pipeline stages of that loop, and programs that share it
GATHERED, NARROW = 128, 16  # partial sums and channels that are combined at a time
BOUNDS = ((-math.inf, math.inf), (0.0, math.inf), (0.0, 6.0))  # no activation, ReLU, ReLU6


@triton.jit(do_not_specialize=["share"])
def _moments(
    x, parts, rows, channels, share, STAGES: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr
):
    """Mean and sum of squared deviations of each program's rows, shifted by the first row."""
    p = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < channels
    start = p * share
    end = tl.minimum(start + share, rows)
    shift = tl.load(
        x + start.to(tl.int64) * channels + c, mask=inside & (start < rows), other=0
    ).to(tl.float32)
    first = tl.zeros((BM, BC), tl.float32)
    second = tl.zeros((BM, BC), tl.float32)
    for m in tl.range(start, end, BM, num_stages=STAGES):
        r = m + tl.arange(0, BM)
        mask = (r < end)[:, None] & inside[None, :]
        value = tl.load(x + r[:, None].to(tl.int64) * channels + c[None, :], mask=mask, other=0).to(
            tl.float32
        )
        value = tl.where(mask, value - shift[None, :], 0.0)
        first += value
        second += value * value
    count = tl.maximum(end - start, 1).to(tl.float32)
    total = tl.sum(first, 0)
    tl.store(parts + (2 * p) * channels + c, shift + total / count, mask=inside)
    tl.store(
        parts + (2 * p + 1) * channels + c, tl.sum(second, 0) - total * total / count, mask=inside
    )


@triton.jit(do_not_specialize=["share", "programs"])
def _statistics(
    parts, mean, scale, running_mean, running_var, tracked, rows, channels,
    share, programs, momentum, eps, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Combine the parts: mean, 1 / deviation, and the running statistics."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < channels
    total = tl.zeros((BP, BC), tl.float32)
    for begin in range(0, programs, BP):
        p = begin + tl.arange(0, BP)
        mask = (p < programs)[:, None] & inside[None, :]
        count = tl.maximum(tl.minimum(share, rows - p * share), 0).to(tl.float32)
        part = tl.load(parts + (2 * p)[:, None] * channels + c[None, :], mask=mask, other=0)
        total += part * count[:, None]
    centre = tl.sum(total, 0) / rows
    squares = tl.zeros((BP, BC), tl.float32)
    for begin in range(0, programs, BP):
        p = begin + tl.arange(0, BP)
        mask = (p < programs)[:, None] & inside[None, :]
        count = tl.maximum(tl.minimum(share, rows - p * share), 0).to(tl.float32)
        part = tl.load(parts + (2 * p)[:, None] * channels + c[None, :], mask=mask, other=0)
        within = tl.load(parts + (2 * p + 1)[:, None] * channels + c[None, :], mask=mask, other=0)
        away = tl.where(mask, part - centre[None, :], 0.0)
        squares += within * tl.where(count > 0, 1.0, 0.0)[:, None] + away * away * count[:, None]
    deviation = tl.sum(squares, 0)
    tl.store(mean + c, centre, mask=inside)
    tl.store(scale + c, 1 / tl.sqrt(deviation / rows + eps), mask=inside)
    old_mean = tl.load(running_mean + c, mask=inside, other=0)
    old_var = tl.load(running_var + c, mask=inside, other=0)
    tl.store(running_mean + c, old_mean + momentum * (centre - old_mean), mask=inside)
    tl.store(running_var + c, old_var + momentum * (deviation / (rows - 1) - old_var), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(tracked, tl.load(tracked) + 1)


@triton.jit
def _normalise(
    x, residual, y, mean, scale, weight, bias, rows, channels, low, high, eps,
    ADD: tl.constexpr, RUNNING: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Normalise by the batch's statistics, or, if RUNNING, by running ones (variance as scale)."""
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = c < channels
    mask = (r < rows)[:, None] & inside[None, :]
    at = r[:, None].to(tl.int64) * channels + c[None, :]
    factor = tl.load(scale + c, mask=inside, other=1)
    if RUNNING:
        factor = 1 / tl.sqrt(factor + eps)
    factor *= tl.load(weight + c, mask=inside, other=0)
    offset = (
        tl.load(bias + c, mask=inside, other=0) - tl.load(mean + c, mask=inside, other=0) * factor
    )
    z = tl.load(x + at, mask=mask, other=0).to(tl.float32) * factor[None, :] + offset[None, :]
    if ADD:
        z += tl.load(residual + at, mask=mask, other=0).to(tl.float32)
    # NaN stays NaN, so that it is noticed.
    z = tl.maximum(z, low, propagate_nan=tl.PropagateNan.ALL)
    z = tl.minimum(z, high, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + at, z.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _gradient(x, y, gradient, at, mask, mean, scale, weight, bias, low, high, ADD: tl.constexpr):
    """Return the gradient before the activation, and the normalised input."""
    d = tl.load(gradient + at, mask=mask, other=0).to(tl.float32)
    standard = (tl.load(x + at, mask=mask, other=0).to(tl.float32) - mean[None, :]) * scale[None, :]
    z = standard * weight[None, :] + bias[None, :]
    if ADD:
        z = tl.load(y + at, mask=mask, other=0).to(tl.float32)
    return tl.where((z <= low) | (z >= high), 0.0, d), standard


@triton.jit(do_not_specialize=["share"])
def _sums(
    x, y, gradient, mean, scale, weight, bias, parts, rows, channels, share, low, high,
    ADD: tl.constexpr, STAGES: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sum the gradient, and its product with the normalised input, over each program's rows."""
    p = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < channels
    start = p * share
    end = tl.minimum(start + share, rows)
    centre, factor = (
        tl.load(mean + c, mask=inside, other=0),
        tl.load(scale + c, mask=inside, other=0),
    )
    w, b = tl.load(weight + c, mask=inside, other=0), tl.load(bias + c, mask=inside, other=0)
    first = tl.zeros((BM, BC), tl.float32)
    second = tl.zeros((BM, BC), tl.float32)
    for m in tl.range(start, end, BM, num_stages=STAGES):
        r = m + tl.arange(0, BM)
        mask = (r < end)[:, None] & inside[None, :]
        at = r[:, None].to(tl.int64) * channels + c[None, :]
        d, standard = _gradient(x, y, gradient, at, mask, centre, factor, w, b, low, high, ADD)
        first += d
        second += d * standard
    tl.store(parts + (2 * p) * channels + c, tl.sum(first, 0), mask=inside)
    tl.store(parts + (2 * p + 1) * channels + c, tl.sum(second, 0), mask=inside)


@triton.jit(do_not_specialize=["programs"])
def _gather(parts, to_bias, to_weight, channels, programs, BP: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < channels
    first = tl.zeros((BP, BC), tl.float32)
    second = tl.zeros((BP, BC), tl.float32)
    for begin in range(0, programs, BP):
        p = begin + tl.arange(0, BP)
        mask = (p < programs)[:, None] & inside[None, :]
        first += tl.load(parts + (2 * p)[:, None] * channels + c[None, :], mask=mask, other=0)
        second += tl.load(parts + (2 * p + 1)[:, None] * channels + c[None, :], mask=mask, other=0)
    tl.store(to_bias + c, tl.sum(first, 0), mask=inside)
    tl.store(to_weight + c, tl.sum(second, 0), mask=inside)


@triton.jit
def _backward(
    x, y, gradient, to_x, to_residual, mean, scale, weight, bias, to_bias, to_weight,
    rows, channels, low, high, ADD: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = c < channels
    mask = (r < rows)[:, None] & inside[None, :]
    at = r[:, None].to(tl.int64) * channels + c[None, :]
    centre, factor = (
        tl.load(mean + c, mask=inside, other=0),
        tl.load(scale + c, mask=inside, other=0),
    )
    w, b = tl.load(weight + c, mask=inside, other=0), tl.load(bias + c, mask=inside, other=0)
    d, standard = _gradient(x, y, gradient, at, mask, centre, factor, w, b, low, high, ADD)
    if ADD:
        tl.store(to_residual + at, d.to(to_residual.dtype.element_ty), mask=mask)
    shared = tl.load(to_bias + c, mask=inside, other=0) / rows
    along = tl.load(to_weight + c, mask=inside, other=0) / rows
    d = (d - shared[None, :] - standard * along[None, :]) * (factor * w)[None, :]
    tl.store(to_x + at, d.to(to_x.dtype.element_ty), mask=mask)


class NormAct(torch.autograd.Function):
    """act(batch_norm(x) + residual) of NHWC pictures in training, by the batch's statistics."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        tracked: Tensor,
        momentum: float,
        eps: float,
        act: int,
    ) -> Tensor:
        """Return the result and update the running statistics."""
        rows, channels, share, programs, blocks = _shares(x)
        y, add = torch.empty_like(x), residual is not None
        mean, scale = x.new_empty(2, channels, dtype=torch.float32)
        parts = x.new_empty(programs, 2, channels, dtype=torch.float32)
        wide = min(WIDE, triton.next_power_of_2(channels))
        _moments[(programs, blocks)](x, parts, rows, channels, share, **_loop(wide))
        few = (triton.cdiv(channels, NARROW),)
        _statistics[few](
            parts, mean, scale, running_mean, running_var, tracked, rows, channels,
            share, programs, momentum, eps, BP=GATHERED, BC=NARROW,
        )  # fmt: skip
        _normalise[(triton.cdiv(rows, ROWS), blocks)](
            x, residual if add else x, y, mean, scale, weight, bias, rows, channels,
            *BOUNDS[act], eps, ADD=add, RUNNING=False, BM=ROWS, BC=wide, num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(x, y if add else None, weight, bias, mean, scale)
        ctx.act, ctx.add = act, add
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, the residual, weight and bias."""
        x, y, weight, bias, mean, scale = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        rows, channels, share, programs, blocks = _shares(x)
        y = x if y is None else y
        to_x = torch.empty_like(x)
        to_residual = torch.empty_like(x) if ctx.add else None
        to_bias, to_weight = x.new_empty(2, channels, dtype=torch.float32)
        parts = x.new_empty(programs, 2, channels, dtype=torch.float32)
        wide = min(WIDE, triton.next_power_of_2(channels))
        _sums[(programs, blocks)](
            x, y, gradient, mean, scale, weight, bias, parts, rows, channels, share,
            *BOUNDS[ctx.act], ADD=ctx.add, **_loop(wide),
        )  # fmt: skip
        few = (triton.cdiv(channels, NARROW),)
        _gather[few](parts, to_bias, to_weight, channels, programs, BP=GATHERED, BC=NARROW)
        _backward[(triton.cdiv(rows, ROWS), blocks)](
            x, y, gradient, to_x, to_x if to_residual is None else to_residual, mean, scale,
            weight, bias, to_bias, to_weight, rows, channels, *BOUNDS[ctx.act],
            ADD=ctx.add, BM=ROWS, BC=wide, num_warps=WARPS,
        )  # fmt: skip
        return to_x, to_residual, to_weight, to_bias, None, None, None, None, None, None


def scored(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    eps: float,
    act: int,
) -> Tensor:
    """Return act(batch_norm(x) + residual) by the running statistics, without gradient."""
    y, add, channels = torch.empty_like(x), residual is not None, x.shape[1]
    rows, wide = x.numel() // channels, min(WIDE, triton.next_power_of_2(channels))
    _normalise[(triton.cdiv(rows, ROWS), triton.cdiv(channels, wide))](
        x, residual if add else x, y, mean, var, weight, bias, rows, channels, *BOUNDS[act], eps,
        ADD=add, RUNNING=True, BM=ROWS, BC=wide, num_warps=WARPS,
    )  # fmt: skip
    return y


def compile_kernels(dtype: torch.dtype, device: torch.device | str) -> None:
    """Compile the kernels that most backbones need; other shapes compile at their first use."""
    x = (
        torch.ones(2, WIDE, 16, 16, dtype=dtype, device=device)
        .to(memory_format=torch.channels_last)
        .requires_grad_()
    )
    weight, bias, mean, var = (torch.ones(WIDE, device=device) for _ in range(4))
    for residual in (None, torch.ones_like(x)):
        tracked = torch.zeros((), dtype=torch.int64, device=device)
        y = NormAct.apply(x, residual, weight, bias, mean, var, tracked, 0.1, 1e-5, 1)
        y.backward(torch.ones_like(y))


def _loop(wide: int) -> dict[str, int]:
    return {"STAGES": STAGES, "BM": SUMMED, "BC": wide, "num_warps": SUMMING}


def _shares(x: Tensor) -> tuple[int, int, int, int, int]:
    """Return rows, channels, rows per program of a reduction, programs, blocks of channels."""
    channels = x.shape[1]
    rows = x.numel() // channels
    blocks = triton.cdiv(channels, WIDE)
    programs = max(1, min(PROGRAMS // blocks, triton.cdiv(rows, SUMMED)))
    share = SUMMED * triton.cdiv(rows, SUMMED * programs)
    return rows, channels, share, triton.cdiv(rows, share), blocks
