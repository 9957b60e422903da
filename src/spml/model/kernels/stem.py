"""The first convolution of a network, with stride 2 on few channels, as a matrix product."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, WARPS = 128, 4  # positions and warps of a tile
PROGRAMS = 528  # programs that share the sums of a gradient
TAPS = 32  # maximum number of values in a window


class Window(NamedTuple):
    """Side and stride of a window, zeros above and to the left, and the size of the output."""

    side: int
    stride: int
    top: int
    left: int
    height: int
    width: int


@triton.jit
def _windows(
    x, r, end, height, width, to_height, to_width, top, left,
    CHANNELS: tl.constexpr, SIDE: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """Load each position's window as a row, with zeros outside of the picture."""
    k = tl.arange(0, TAPS)
    down = (2 * (r // to_width % to_height) - top)[:, None] + (k // (SIDE * CHANNELS))[None, :]
    along = (2 * (r % to_width) - left)[:, None] + (k // CHANNELS % SIDE)[None, :]
    there = (r < end)[:, None] & (k < SIDE * SIDE * CHANNELS)[None, :]
    there = there & (down >= 0) & (down < height) & (along >= 0) & (along < width)
    picture = (r // (to_width * to_height))[:, None].to(tl.int64)
    at = ((picture * height + down) * width + along) * CHANNELS + (k % CHANNELS)[None, :]
    return tl.load(x + at, mask=there, other=0)


@triton.jit
def _stem(
    x, taps, y, rows, out, height, width, to_height, to_width, top, left,
    CHANNELS: tl.constexpr, SIDE: tl.constexpr, TAPS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    windows = _windows(
        x, r, rows, height, width, to_height, to_width, top, left, CHANNELS, SIDE, TAPS
    )
    k = tl.arange(0, TAPS)
    inside = (k < SIDE * SIDE * CHANNELS)[:, None] & (n < out)[None, :]
    factors = tl.load(taps + k[:, None] * out + n[None, :], mask=inside, other=0)
    total = tl.dot(windows, factors, input_precision="ieee")
    at = r[:, None].to(tl.int64) * out + n[None, :]
    tl.store(y + at, total.to(y.dtype.element_ty), mask=(r < rows)[:, None] & (n < out)[None, :])


@triton.jit(do_not_specialize=["share"])
def _stem_weights(
    x, gradient, parts, rows, out, height, width, to_height, to_width, top, left, share,
    CHANNELS: tl.constexpr, SIDE: tl.constexpr, TAPS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of the weights over each program's positions."""
    p = tl.program_id(0)
    n, k = tl.arange(0, BN), tl.arange(0, TAPS)
    start = p * share
    end = tl.minimum(start + share, rows)
    total = tl.zeros((TAPS, BN), tl.float32)
    for m in range(start, end, BM):
        r = m + tl.arange(0, BM)
        at = r[:, None].to(tl.int64) * out + n[None, :]
        d = tl.load(gradient + at, mask=(r < end)[:, None] & (n < out)[None, :], other=0)
        windows = _windows(
            x, r, end, height, width, to_height, to_width, top, left, CHANNELS, SIDE, TAPS
        )
        total += tl.dot(tl.trans(windows), d, input_precision="ieee")
    tl.store(parts + (p * TAPS + k[:, None]) * BN + n[None, :], total)


class Stem(torch.autograd.Function):
    """A convolution with stride 2 and no bias, of pictures that need no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, window: Window) -> Tensor:
        """Return the convolution in the type of x; weights are rounded to it, as autocast does."""
        out, wide = weight.shape[0], _wide(weight)
        taps = weight.detach().to(x.dtype).permute(2, 3, 1, 0).contiguous()
        shape = (x.shape[0], out, window.height, window.width)
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        rows = y.numel() // out
        _stem[(triton.cdiv(rows, ROWS),)](
            x, taps, y, rows, out, *_sizes(x, window), **_how(x, window), BN=wide, num_warps=WARPS
        )
        ctx.save_for_backward(x, weight)
        ctx.window = window
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the weights."""
        (x, weight), window = ctx.saved_tensors, ctx.window
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        out, wide = weight.shape[0], _wide(weight)
        rows = gradient.numel() // out
        share = ROWS * triton.cdiv(rows, ROWS * PROGRAMS)
        programs = triton.cdiv(rows, share)
        parts = x.new_empty(programs, TAPS, wide, dtype=torch.float32)
        _stem_weights[(programs,)](
            x,
            gradient,
            parts,
            rows,
            out,
            *_sizes(x, window),
            share,
            **_how(x, window),
            BN=wide,
            num_warps=WARPS,
        )
        _, channels, side, _ = weight.shape
        taps = parts.sum(0)[: side * side * channels, :out].view(side, side, channels, out)
        return None, taps.permute(3, 2, 0, 1), None


def _wide(weight: Tensor) -> int:
    return max(16, 1 << (weight.shape[0] - 1).bit_length())


def _sizes(x: Tensor, window: Window) -> tuple[int, ...]:
    return *x.shape[2:], window.height, window.width, window.top, window.left


def _how(x: Tensor, window: Window) -> dict[str, int]:
    return {"CHANNELS": x.shape[1], "SIDE": window.side, "TAPS": TAPS, "BM": ROWS}
