"""Run batch norms with their activations, and depthwise convolutions, by our kernels on a GPU.

The kernels replace torch's while a training step is recorded, and while pictures are scored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spml.model.classifier import Classifier

ACTIVATIONS: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.Identity: lambda z: z,
    nn.ReLU: F.relu,
    nn.ReLU6: F.relu6,
}
CODES = {kind: code for code, kind in enumerate(ACTIVATIONS)}  # indices of norm.BOUNDS


_compiling: list[threading.Thread] = []


def compile_ahead(dtype: torch.dtype, device: torch.device | str = "cuda") -> None:
    """Start to compile our kernels in a thread; `our_kernels` waits for its end."""

    def work() -> None:
        with suppress(Exception):  # reported when the kernels are used
            from spml.model.kernels.norm import compile_kernels

            compile_kernels(dtype, device)

    if find_spec("triton") is not None:
        _compiling.append(threading.Thread(target=work, name="compile", daemon=True))
        _compiling[-1].start()


@contextmanager
def our_kernels(classifier: Classifier) -> Iterator[int]:
    """Run the supported modules of the backbone by our kernels in this block; yield their number.

    Weights, names and results do not change, apart from rounding. Launched one by one, the kernels
    occupy the host longer than torch's own, so they suit recorded graphs and large batches.
    """
    while _compiling:
        _compiling.pop().join()  # a graph cannot be recorded while another thread uses the device
    changed: list[nn.Module] = []

    def change(module: nn.Module, forward: Callable[..., Tensor]) -> None:
        module.forward = forward
        changed.append(module)

    try:
        if find_spec("triton") is not None:
            for module in classifier.backbone.modules():
                _change_block(module, change)
                if type(module) is nn.BatchNorm2d and "forward" not in vars(module):
                    change(module, lambda x, norm=module: norm_act(norm, x))
                elif _is_norm_act(module):
                    change(module, lambda x, norm=module: norm_act(norm, x, norm.act))
                elif _is_depthwise(module) or _is_stem(module):
                    change(module, lambda x, conv=module: convolve(conv, x))
        yield len(changed)
    finally:
        for module in changed:
            if "forward" in vars(module):
                del module.forward


def norm_act(
    norm: Any, x: Tensor, act: nn.Module | None = None, residual: Tensor | None = None
) -> Tensor:
    """Return act(norm(x) + residual), by our kernels if they support the case."""
    kind = nn.Identity if act is None else type(act)
    if norm.training and norm.momentum is not None and _fits(norm, x, residual):
        from spml.model.kernels.norm import NormAct

        moved = norm.running_mean, norm.running_var, norm.num_batches_tracked
        y: Tensor = NormAct.apply(
            x, residual, norm.weight, norm.bias, *moved, norm.momentum, norm.eps, CODES[kind]
        )
        return y
    if not norm.training and not torch.is_grad_enabled() and _fits(norm, x, residual):
        from spml.model.kernels.norm import scored

        return scored(
            x,
            residual,
            norm.weight,
            norm.bias,
            norm.running_mean,
            norm.running_var,
            norm.eps,
            CODES[kind],
        )
    y = nn.BatchNorm2d.forward(norm, x)
    return ACTIVATIONS[kind](y if residual is None else y + residual)


def convolve(conv: Any, x: Tensor) -> Tensor:
    """Return a first or depthwise convolution, by our kernels if they support the case."""
    x, first = _rounded(x), _is_stem(conv)
    # There is no kernel for the gradient of a picture.
    if not _fits_conv(conv, x) or (first and x.requires_grad):
        plain: Tensor = type(conv).forward(conv, x)
        return plain
    from spml.model.kernels.depthwise import Depthwise
    from spml.model.kernels.stem import Stem

    ours: Any = Stem if first else Depthwise
    y: Tensor = ours.apply(x, conv.weight, _window(conv, x))
    return y


def _rounded(x: Tensor) -> Tensor:
    """Round to the type that a convolution takes under autocast."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _fits_conv(conv: Any, x: Tensor) -> bool:
    order = x.is_contiguous(memory_format=torch.channels_last)
    return bool(_runs_on(x.device) and order and conv.weight.dtype == torch.float32)


def _window(conv: Any, x: Tensor) -> Any:
    from spml.model.kernels.stem import Window

    side, stride = conv.kernel_size[0], conv.stride[0]
    sizes, zeros = x.shape[2:], list(conv.padding)
    out = [(size + 2 * n - side) // stride + 1 for size, n in zip(sizes, zeros, strict=True)]
    if type(conv) is not nn.Conv2d:  # "same" padding for half the size, the odd zero at the end
        out = [(size + 1) // 2 for size in sizes]
        zeros = [max(2 * (n - 1) + side - size, 0) // 2 for size, n in zip(sizes, out, strict=True)]
    return Window(side, stride, *zeros, *out)


def _is_plain(module: Any, *sides: int) -> bool:
    """Return whether a module is a zero-padded convolution without bias of one of these sides."""
    from timm.layers.conv2d_same import Conv2dSame

    if (
        type(module) not in (nn.Conv2d, Conv2dSame)
        or module.bias is not None
        or isinstance(module.padding, str)
    ):
        return False
    square = module.kernel_size[0] == module.kernel_size[1] and module.kernel_size[0] in sides
    return square and module.dilation == (1, 1) and module.padding_mode == "zeros"


def _is_stem(module: Any) -> bool:
    """Return whether a module is a 3 x 3 convolution of pictures with stride 2."""
    if not _is_plain(module, 3):
        return False
    few = module.in_channels <= 3 and module.groups == 1 and module.out_channels <= 64
    return bool(few and module.stride == (2, 2))


def _is_depthwise(module: Any) -> bool:
    """Return whether our kernels support the depthwise convolution."""
    if not _is_plain(module, 3, 5):
        return False
    alone = module.groups == module.in_channels == module.out_channels
    keeps = type(module) is nn.Conv2d and module.padding == (module.kernel_size[0] // 2,) * 2
    return alone and (module.stride == (2, 2) or (module.stride == (1, 1) and keeps))


def _fits(norm: Any, x: Tensor, residual: Tensor | None) -> bool:
    whole = norm.affine and norm.track_running_stats
    order = x.is_contiguous(memory_format=torch.channels_last) and x.numel() > x.shape[1]
    alike = residual is None or (
        residual.dtype == x.dtype
        and residual.shape == x.shape
        and residual.is_contiguous(memory_format=torch.channels_last)
    )
    return bool(
        _runs_on(x.device) and whole and order and alike and norm.weight.dtype == torch.float32
    )


def _runs_on(device: torch.device) -> bool:
    return device.type == "cuda"


def _is_norm_act(module: Any) -> bool:
    """Return whether a module is timm's batch norm with an activation."""
    from timm.layers.norm_act import BatchNormAct2d

    return (
        type(module) is BatchNormAct2d
        and type(module.drop) is nn.Identity
        and type(module.act) in ACTIVATIONS
    )


def _change_block(module: Any, change: Callable[[nn.Module, Callable[..., Tensor]], None]) -> None:
    """Fuse norm, sum and activation in the blocks of residual networks."""
    from timm.models.resnet import BasicBlock, Bottleneck, ResNet

    if type(module) is ResNet and _plain(module.bn1, module.act1):
        change(module.bn1, lambda x, norm=module.bn1, act=module.act1: norm_act(norm, x, act))
        change(module.act1, lambda x: x)
    elif type(module) is BasicBlock and _simple(module, "act1", "act2"):
        change(module, lambda x, block=module: _basic(block, x))
    elif type(module) is Bottleneck and _simple(module, "act1", "act2", "act3"):
        change(module, lambda x, block=module: _bottleneck(block, x))


def _plain(norm: nn.Module, act: nn.Module) -> bool:
    return type(norm) is nn.BatchNorm2d and type(act) in ACTIVATIONS


def _simple(block: Any, *acts: str) -> bool:
    """Return whether only norms, activations and the sum separate a block's convolutions."""
    nothing = block.se is None and block.drop_path is None
    between = all(type(part) is nn.Identity for part in (block.drop_block, block.aa))
    norms = (getattr(block, name.replace("act", "bn")) for name in acts)
    return nothing and between and all(map(_plain, norms, (getattr(block, name) for name in acts)))


def _shortcut(block: Any, x: Tensor) -> Tensor:
    shortcut: Tensor = x if block.downsample is None else block.downsample(x)
    return shortcut


def _basic(block: Any, x: Tensor) -> Tensor:
    y = norm_act(block.bn1, block.conv1(x), block.act1)
    return norm_act(block.bn2, block.conv2(y), block.act2, _shortcut(block, x))


def _bottleneck(block: Any, x: Tensor) -> Tensor:
    y = norm_act(block.bn1, block.conv1(x), block.act1)
    y = norm_act(block.bn2, block.conv2(y), block.act2)
    return norm_act(block.bn3, block.conv3(y), block.act3, _shortcut(block, x))
