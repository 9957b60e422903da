"""Depthwise convolution of NHWC pictures.

Zeros around a picture are implied, without a padded copy. Cases that torch's own kernels compute as
fast are left to torch.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from spml.model.kernels.stem import Window

ROWS, WIDE, WARPS = 64, 32, 4  # positions, channels and warps of a tile
FEWER = 32  # positions of a tile in a kernel that holds several tiles
SUMMED, SUMMING, STAGES = 32, 4, 2  # positions, warps and pipeline stages of a loop over tiles
FEW = 32  # channels up to which our weight gradient of stride 1 is faster than torch's
PROGRAMS = 528  # programs that share the sums of a gradient
GATHERED = 64  # partial sums that are combined at a time


@triton.jit
def _value(x, start, offset, down, along, height, width, there, inside):
    """Load the pictures' values at these places, zeros outside of a picture."""
    there = there & (down >= 0) & (down < height) & (along >= 0) & (along < width)
    return tl.load(x + (start + offset), mask=there[:, None] & inside[None, :], other=0).to(
        tl.float32
    )


@triton.jit
def _begin(picture, down, along, height, width, channels, c):
    return ((picture * height + down).to(tl.int64) * width + along)[:, None] * channels + c[None, :]


@triton.jit
def _convolve(
    x, taps, y, rows, channels, height, width, to_height, to_width, top, left,
    SIDE: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Convolve with stride 2."""
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    inside, there = c < channels, r < rows
    down, along = 2 * (r // to_width % to_height) - top, 2 * (r % to_width) - left
    start = _begin(r // (to_width * to_height), down, along, height, width, channels, c)
    total = tl.zeros((BM, BC), tl.float32)
    for i in tl.static_range(SIDE):
        for j in tl.static_range(SIDE):
            factor = tl.load(taps + (i * SIDE + j) * channels + c, mask=inside, other=0).to(
                tl.float32
            )
            offset = (i * width + j) * channels
            total += factor * _value(
                x, start, offset, down + i, along + j, height, width, there, inside
            )
    at = r[:, None].to(tl.int64) * channels + c[None, :]
    tl.store(y + at, total.to(y.dtype.element_ty), mask=there[:, None] & inside[None, :])


@triton.jit
def _convolve_to_x(
    gradient, taps, to_x, rows, channels, height, width, to_height, to_width, top, left, tall, wide,
    SIDE: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Gradient of the pictures, for the four places that share the same output gradients."""
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    inside, there = c < channels, r < rows
    picture, u, v = r // (tall * wide), r // wide % tall, r % wide
    start = _begin(picture, u, v, to_height, to_width, channels, c)
    even_even = tl.zeros((BM, BC), tl.float32)
    even_odd = tl.zeros((BM, BC), tl.float32)
    odd_even = tl.zeros((BM, BC), tl.float32)
    odd_odd = tl.zeros((BM, BC), tl.float32)
    for a in tl.static_range((SIDE + 1) // 2):
        for b in tl.static_range((SIDE + 1) // 2):
            offset = -(a * to_width + b) * channels
            d = _value(gradient, start, offset, u - a, v - b, to_height, to_width, there, inside)
            tap = taps + (2 * a * SIDE + 2 * b) * channels + c
            even_even += d * tl.load(tap, mask=inside, other=0).to(tl.float32)[None, :]
            if 2 * b + 1 < SIDE:
                even_odd += (
                    d * tl.load(tap + channels, mask=inside, other=0).to(tl.float32)[None, :]
                )
            if 2 * a + 1 < SIDE:
                odd_even += (
                    d * tl.load(tap + SIDE * channels, mask=inside, other=0).to(tl.float32)[None, :]
                )
                if 2 * b + 1 < SIDE:
                    tap += (SIDE + 1) * channels
                    odd_odd += d * tl.load(tap, mask=inside, other=0).to(tl.float32)[None, :]
    down, along = 2 * u - top, 2 * v - left
    start = to_x + _begin(picture, down, along, height, width, channels, c)
    upper, lower = (
        there & (down >= 0) & (down < height),
        there & (down + 1 >= 0) & (down + 1 < height),
    )
    first, second = (along >= 0) & (along < width), (along + 1 >= 0) & (along + 1 < width)
    kind = to_x.dtype.element_ty
    tl.store(start, even_even.to(kind), mask=(upper & first)[:, None] & inside[None, :])
    tl.store(start + channels, even_odd.to(kind), mask=(upper & second)[:, None] & inside[None, :])
    start += width * channels
    tl.store(start, odd_even.to(kind), mask=(lower & first)[:, None] & inside[None, :])
    tl.store(start + channels, odd_odd.to(kind), mask=(lower & second)[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["share"])
def _weights_of_3(
    x, gradient, parts, rows, channels, height, width, to_height, to_width, top, left, share,
    STRIDE: tl.constexpr, STAGES: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of a 3 x 3 window over each program's positions, line by line."""
    p = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < channels
    start = p * share
    end = tl.minimum(start + share, rows)
    u0 = tl.zeros((BM, BC), tl.float32)
    u1 = tl.zeros((BM, BC), tl.float32)
    u2 = tl.zeros((BM, BC), tl.float32)
    m0 = tl.zeros((BM, BC), tl.float32)
    m1 = tl.zeros((BM, BC), tl.float32)
    m2 = tl.zeros((BM, BC), tl.float32)
    l0 = tl.zeros((BM, BC), tl.float32)
    l1 = tl.zeros((BM, BC), tl.float32)
    l2 = tl.zeros((BM, BC), tl.float32)
    for m in tl.range(start, end, BM, num_stages=STAGES):
        r = m + tl.arange(0, BM)
        there = r < end
        down, along = STRIDE * (r // to_width % to_height) - top, STRIDE * (r % to_width) - left
        g = r[:, None].to(tl.int64) * channels + c[None, :]
        d = tl.load(gradient + g, mask=there[:, None] & inside[None, :], other=0).to(tl.float32)
        at = _begin(r // (to_width * to_height), down, along, height, width, channels, c)
        line = width * channels
        u0 += d * _value(x, at, 0, down, along, height, width, there, inside)
        u1 += d * _value(x, at, channels, down, along + 1, height, width, there, inside)
        u2 += d * _value(x, at, 2 * channels, down, along + 2, height, width, there, inside)
        m0 += d * _value(x, at, line, down + 1, along, height, width, there, inside)
        m1 += d * _value(x, at, line + channels, down + 1, along + 1, height, width, there, inside)
        m2 += d * _value(
            x, at, line + 2 * channels, down + 1, along + 2, height, width, there, inside
        )
        l0 += d * _value(x, at, 2 * line, down + 2, along, height, width, there, inside)
        l1 += d * _value(
            x, at, 2 * line + channels, down + 2, along + 1, height, width, there, inside
        )
        l2 += d * _value(
            x, at, 2 * line + 2 * channels, down + 2, along + 2, height, width, there, inside
        )
    to = parts + p * 9 * channels + c
    tl.store(to, tl.sum(u0, 0), mask=inside)
    tl.store(to + channels, tl.sum(u1, 0), mask=inside)
    tl.store(to + 2 * channels, tl.sum(u2, 0), mask=inside)
    tl.store(to + 3 * channels, tl.sum(m0, 0), mask=inside)
    tl.store(to + 4 * channels, tl.sum(m1, 0), mask=inside)
    tl.store(to + 5 * channels, tl.sum(m2, 0), mask=inside)
    tl.store(to + 6 * channels, tl.sum(l0, 0), mask=inside)
    tl.store(to + 7 * channels, tl.sum(l1, 0), mask=inside)
    tl.store(to + 8 * channels, tl.sum(l2, 0), mask=inside)


@triton.jit(do_not_specialize=["share"])
def _weights_of_5(
    x, gradient, parts, rows, channels, height, width, to_height, to_width, top, left, share,
    STRIDE: tl.constexpr, STAGES: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of one line of a 5 x 5 window over each program's positions."""
    p, line = tl.program_id(0), tl.program_id(2)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < channels
    start = p * share
    end = tl.minimum(start + share, rows)
    l0 = tl.zeros((BM, BC), tl.float32)
    l1 = tl.zeros((BM, BC), tl.float32)
    l2 = tl.zeros((BM, BC), tl.float32)
    l3 = tl.zeros((BM, BC), tl.float32)
    l4 = tl.zeros((BM, BC), tl.float32)
    for m in tl.range(start, end, BM, num_stages=STAGES):
        r = m + tl.arange(0, BM)
        there = r < end
        down, along = (
            STRIDE * (r // to_width % to_height) - top + line,
            STRIDE * (r % to_width) - left,
        )
        g = r[:, None].to(tl.int64) * channels + c[None, :]
        d = tl.load(gradient + g, mask=there[:, None] & inside[None, :], other=0).to(tl.float32)
        at = _begin(r // (to_width * to_height), down, along, height, width, channels, c)
        l0 += d * _value(x, at, 0, down, along, height, width, there, inside)
        l1 += d * _value(x, at, channels, down, along + 1, height, width, there, inside)
        l2 += d * _value(x, at, 2 * channels, down, along + 2, height, width, there, inside)
        l3 += d * _value(x, at, 3 * channels, down, along + 3, height, width, there, inside)
        l4 += d * _value(x, at, 4 * channels, down, along + 4, height, width, there, inside)
    to = parts + (p * 5 + line) * 5 * channels + c
    tl.store(to, tl.sum(l0, 0), mask=inside)
    tl.store(to + channels, tl.sum(l1, 0), mask=inside)
    tl.store(to + 2 * channels, tl.sum(l2, 0), mask=inside)
    tl.store(to + 3 * channels, tl.sum(l3, 0), mask=inside)
    tl.store(to + 4 * channels, tl.sum(l4, 0), mask=inside)


@triton.jit(do_not_specialize=["programs"])
def _weights(
    parts, to_weight, channels, programs, TAPS: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):
    """Combine the programs' sums."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    tap = tl.program_id(1)
    inside = c < channels
    total = tl.zeros((BP, BC), tl.float32)
    for begin in range(0, programs, BP):
        p = begin + tl.arange(0, BP)
        mask = (p < programs)[:, None] & inside[None, :]
        total += tl.load(
            parts + (p * TAPS + tap)[:, None] * channels + c[None, :], mask=mask, other=0
        )
    tl.store(to_weight + c * TAPS + tap, tl.sum(total, 0), mask=inside)


class Depthwise(torch.autograd.Function):
    """A depthwise convolution without bias, with stride 2, or stride 1 and same-size padding."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, window: Window) -> Tensor:
        """Return the convolution in the type of x; weights are rounded to it, as autocast does."""
        rounded = weight.detach().to(x.dtype)
        ctx.save_for_backward(x, rounded)
        ctx.window = window
        return _halved(x, rounded, window) if window.stride == 2 else _moved(x, rounded, window)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and weight."""
        x, weight = ctx.saved_tensors
        gradient, window = gradients[0].contiguous(memory_format=torch.channels_last), ctx.window
        if window.stride == 2:
            return _halved_to_x(gradient, x, weight, window), _to_weight(gradient, x, window), None
        to_x = _moved(gradient, weight.flip(2, 3), window)  # faster than torch's own gradient
        ours = window.side == 3 and x.shape[1] <= FEW
        return to_x, _to_weight(gradient, x, window) if ours else _torchs(gradient, x, weight), None


def _moved(x: Tensor, weight: Tensor, window: Window) -> Tensor:
    return torch.conv2d(x, weight, None, 1, (window.top, window.left), 1, x.shape[1])


def _torchs(gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Return torch's gradient of the weights, for equal padding on all sides."""
    zeros = (weight.shape[-1] // 2,) * 2
    ways = (None, (1, 1), zeros, (1, 1), False, (0, 0), x.shape[1], (False, True, False))
    to_weight: Tensor = torch.ops.aten.convolution_backward(gradient, x, weight, *ways)[1]
    return to_weight.float()


def _taps(weight: Tensor) -> Tensor:
    """Return one row of channels for each place of the window."""
    return weight.flatten(1).t().contiguous()


def _sizes(x: Tensor, window: Window) -> tuple[int, ...]:
    return *x.shape[1:], window.height, window.width, window.top, window.left


def _halved(x: Tensor, weight: Tensor, window: Window) -> Tensor:
    count, channels = x.shape[:2]
    shape = (count, channels, window.height, window.width)
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    rows = y.numel() // channels
    _convolve[(triton.cdiv(rows, ROWS), triton.cdiv(channels, WIDE))](
        x,
        _taps(weight),
        y,
        rows,
        *_sizes(x, window),
        SIDE=window.side,
        BM=ROWS,
        BC=WIDE,
        num_warps=WARPS,
    )
    return y


def _halved_to_x(gradient: Tensor, x: Tensor, weight: Tensor, window: Window) -> Tensor:
    to_x = torch.empty_like(x)
    count, channels, height, width = x.shape
    tall, wide = (height + window.top + 1) // 2, (width + window.left + 1) // 2
    rows = count * tall * wide
    _convolve_to_x[(triton.cdiv(rows, FEWER), triton.cdiv(channels, WIDE))](
        gradient, _taps(weight), to_x, rows, *_sizes(x, window), tall, wide,
        SIDE=window.side, BM=FEWER, BC=WIDE, num_warps=WARPS,
    )  # fmt: skip
    return to_x


def _to_weight(gradient: Tensor, x: Tensor, window: Window) -> Tensor:
    channels, side = x.shape[1], window.side
    rows, blocks = gradient.numel() // channels, triton.cdiv(channels, WIDE)
    kernel, lines = (_weights_of_3, 1) if side == 3 else (_weights_of_5, side)
    tiles = triton.cdiv(rows, SUMMED)
    share = SUMMED * triton.cdiv(tiles, max(1, min(PROGRAMS // (blocks * lines), tiles)))
    programs = triton.cdiv(rows, share)
    parts = x.new_empty(programs, side**2, channels, dtype=torch.float32)
    to_weight = x.new_empty(channels, 1, side, side, dtype=torch.float32)
    kernel[(programs, blocks, lines)](
        x, gradient, parts, rows, *_sizes(x, window), share,
        STRIDE=window.stride, STAGES=STAGES, BM=SUMMED, BC=WIDE, num_warps=SUMMING,
    )  # fmt: skip
    _weights[(blocks, side**2)](
        parts, to_weight, channels, programs, TAPS=side**2, BP=GATHERED, BC=WIDE
    )
    return to_weight
