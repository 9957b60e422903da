"""Batch norms together with the sum and activation that follow them, while a training step is recorded on a GPU."""

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
CODES = {kind: code for code, kind in enumerate(ACTIVATIONS)}  # as norm_kernels numbers them


_compiling: list[threading.Thread] = []


def compile_ahead(dtype: torch.dtype, device: torch.device | str = "cuda") -> None:
    """Begin to compile our kernels beside the caller; whoever uses them then waits until that is over."""

    def work() -> None:
        with suppress(Exception):  # told where the kernels are used
            from spml.model.norm_kernels import compile_kernels

            compile_kernels(dtype, device)

    if find_spec("triton") is not None:
        _compiling.append(threading.Thread(target=work, name="compile", daemon=True))
        _compiling[-1].start()


@contextmanager
def fused_norms(classifier: Classifier) -> Iterator[int]:
    """Run the backbone's batch norms by our kernels inside of this block; gives how many.

    Weights, names and results stay what they are, apart from rounding. Launched one by one the kernels would keep the
    host busy for longer than torch's own, so this is meant for what is recorded once and replayed.
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
        yield len(changed)
    finally:
        for module in changed:
            if "forward" in vars(module):
                del module.forward


def norm_act(norm: Any, x: Tensor, act: nn.Module | None = None, residual: Tensor | None = None) -> Tensor:
    """act(norm(x) + residual), by our kernels where these fit the case."""
    kind = nn.Identity if act is None else type(act)
    if _fits(norm, x, residual):
        from spml.model.norm_kernels import NormAct

        moved = norm.running_mean, norm.running_var, norm.num_batches_tracked
        y: Tensor = NormAct.apply(x, residual, norm.weight, norm.bias, *moved, norm.momentum, norm.eps, CODES[kind])
        return y
    y = nn.BatchNorm2d.forward(norm, x)
    return ACTIVATIONS[kind](y if residual is None else y + residual)


def _fits(norm: Any, x: Tensor, residual: Tensor | None) -> bool:
    whole = norm.training and norm.affine and norm.track_running_stats and norm.momentum is not None
    order = x.is_contiguous(memory_format=torch.channels_last) and x.numel() > x.shape[1]
    alike = residual is None or (
        residual.dtype == x.dtype
        and residual.shape == x.shape
        and residual.is_contiguous(memory_format=torch.channels_last)
    )
    return bool(_runs_on(x.device) and whole and order and alike and norm.weight.dtype == torch.float32)


def _runs_on(device: torch.device) -> bool:
    return device.type == "cuda"


def _is_norm_act(module: Any) -> bool:
    """timm's batch norm that has its activation inside."""
    from timm.layers.norm_act import BatchNormAct2d

    return type(module) is BatchNormAct2d and type(module.drop) is nn.Identity and type(module.act) in ACTIVATIONS


def _change_block(module: Any, change: Callable[[nn.Module, Callable[..., Tensor]], None]) -> None:
    """Residual networks have norm, sum and activation side by side in their blocks."""
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
    """Whether nothing but norms, activations and the sum stands between a block's convolutions."""
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
