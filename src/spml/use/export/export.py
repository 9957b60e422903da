"""Export a model, with its preprocessing, as one file: ONNX or a torch.export program."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import spml
from spml.data.images.decode import resize
from spml.errors import EXTRA, UserError
from spml.files import replacing
from spml.model import Classifier, ModelInfo, load_model

Format = Literal["onnx", "torch"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}
OPSET = 18
OUTPUTS = ["logits", "probabilities"]
EXTRA_FILE = "spml.json"  # holds the metadata in a torch.export program
DIMENSIONS = {0: "batch", 1: "height", 2: "width"}
MOST_BITS = 22  # fraction bits of a weight
SIGNED = 1 << 15  # weights are below it
TOLERANCE = 1e-4  # of a probability; relative for logits above 1
BATCHES = (1, 2, 5)
SHAPES = ((1, 1), (37, 90), (480, 360))  # height and width of pictures, besides the model's own

Run = Callable[[Tensor], tuple[Tensor, ...]]


class Portable(nn.Module):
    """A model with its preprocessing and calibration: resize, normalise, classify, calibrate.

    It takes uint8 pictures (batch, height, width, 3) of any size, or float32 feature vectors
    (batch, features).
    """

    def __init__(self, model: Classifier, info: ModelInfo) -> None:
        super().__init__()
        self.model, self.calibrate = model, info.calibrate()
        self.size: int | None = info.preprocessing["size"] if _takes_pictures(info) else None

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The model's own logits, and calibrated probabilities."""
        x = inputs if self.size is None else exact_resize(inputs.permute(0, 3, 1, 2), self.size)
        logits = self.model(x).float()
        return logits, self.calibrate(logits).sigmoid()


def export(run: Path, out: Path, format: Format = "onnx") -> float:
    """Write the file if it agrees with the model, and return the largest difference.

    Args:
        run: a run folder or its `best`.
        out: the file; an existing one is replaced.
        format: onnx, or torch for a torch.export program.
    """
    if format == "onnx":
        _need_onnx()
    model, info = load_model(run)
    write = {"onnx": _write_onnx, "torch": _write_torch}[format]
    with replacing(out) as beside:
        try:
            with _quiet():
                runs = write(Portable(model, info).eval(), info, beside)
        except OSError:
            raise
        except Exception as error:  # exporters raise errors of many types
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise UserError(
                f"{run}: {info.backbone} cannot be exported as {format} ({reason})"
            ) from error
        return verify(model, info, runs, out)


def metadata(info: ModelInfo) -> dict[str, Any]:
    """Metadata that a program needs to run the file."""
    shape, inside = "float32 (batch, features)", ["normalise"]
    if _takes_pictures(info):
        shape, inside = "uint8 (batch, height, width, 3), RGB", ["resize", "normalise"]
    return {
        "classes": info.classes,
        "thresholds": info.thresholds,
        "calibrated": info.calibration is not None,
        "method": info.training.get("method"),
        "preprocessing": {**info.preprocessing, "input": shape, "inside": inside},
        "spml": spml.__version__,
    }


def input_name(info: ModelInfo) -> str:
    """Name of the only input."""
    return "pictures" if _takes_pictures(info) else "features"


def _takes_pictures(info: ModelInfo) -> bool:
    return bool(info.preprocessing["kind"] == "pictures")


def _need_onnx() -> None:
    try:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            importlib.import_module(name)
    except ImportError as error:
        needs = f"{name} is not installed, which ONNX needs"
        raise UserError(f"{needs}; {EXTRA.format('export')}") from error


def _example(info: ModelInfo) -> tuple[Tensor, dict[int, Any]]:
    """Inputs to trace with, and their dynamic dimensions."""
    from torch.export import Dim

    if not _takes_pictures(info):
        return torch.zeros(3, int(info.preprocessing["features"])), {0: Dim("batch")}
    dynamic = {place: Dim(name) for place, name in DIMENSIONS.items()}
    return torch.zeros(2, 61, 47, 3, dtype=torch.uint8), dynamic


def _write_onnx(portable: Portable, info: ModelInfo, path: Path) -> Run:
    import onnx
    import onnxruntime

    x, dynamic = _example(info)
    program = torch.onnx.export(
        portable,
        (x,),
        input_names=[input_name(info)],
        output_names=OUTPUTS,
        opset_version=OPSET,
        dynamic_shapes=(dynamic,),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    about = {name: json.dumps(value) for name, value in metadata(info).items()}
    onnx.helper.set_model_props(proto, about)
    onnx.save(proto, path)
    onnx.checker.check_model(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = session.run(OUTPUTS, {input_name(info): inputs.numpy()})
        return tuple(map(torch.from_numpy, outputs))

    return run


def _write_torch(portable: Portable, info: ModelInfo, path: Path) -> Run:
    x, dynamic = _example(info)
    program = torch.export.export(portable, (x,), dynamic_shapes=(dynamic,))
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={EXTRA_FILE: json.dumps(metadata(info))})
    with path.open("rb") as file:
        loaded: Callable[..., tuple[Tensor, ...]] = torch.export.load(file).module()
    return loaded


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' own messages."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(level)


def exact_resize(pictures: Tensor, size: int) -> Tensor:
    """Resize whole-number pictures (B, 3, H, W) to whole numbers (B, 3, size, size) in float32.

    torch resizes uint8 pictures with weights rounded to 16-bit integers, and rounds after each of
    the two passes, first along rows, then along columns. One grey level moves a model's output far
    more than floating-point rounding does, so this function repeats the same integer arithmetic,
    which is exact in float64.
    """
    x = pictures.double()
    weights, one = _weights(x.shape[3], size, x.device)
    x = _rounded(x @ weights.T, one)
    weights, one = _weights(x.shape[2], size, x.device)
    return _rounded(weights @ x, one).float()


def _rounded(sums: Tensor, one: Tensor) -> Tensor:
    return torch.floor((sums + one / 2) / one).clamp(0, 255)


def _weights(length: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Integer weights (size, length) of antialiased bilinear resizing, and the integer for 1."""
    places = torch.arange(length, dtype=torch.float64, device=device)
    scale = (places[-1:] + 1) / size
    centres = scale * (torch.arange(size, dtype=torch.float64, device=device) + 0.5)
    distances = (places[None] - centres[:, None] + 0.5).abs() * (1 / scale.clamp(min=1))
    weights = (1 - distances).clamp(min=0)
    weights = weights / weights.sum(dim=1, keepdim=True)
    powers = 2.0 ** torch.arange(1, MOST_BITS + 1, dtype=torch.float64, device=device)
    fits = torch.floor(0.5 + weights.max() * powers) < SIGNED
    one = torch.where(fits, powers, 1.0).max()  # the largest power of two whose weights all fit
    return torch.floor(0.5 + weights * one), one


def verify(model: Classifier, info: ModelInfo, run: Run, out: Path) -> float:
    """The largest difference of a probability; raise UserError if it exceeds the tolerance.

    The reference is what `spml predict` computes, including its own resize. `out` only appears in
    messages.
    """
    worst = 0.0
    calibrate = info.calibrate()
    for inputs, x in _samples(info):
        with torch.inference_mode():
            logits = model(x).float()
            probabilities = calibrate(logits).sigmoid()
        try:
            exported = run(inputs)
        except Exception as error:  # each runtime raises errors of its own
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"{out}: not written, as it does not run on {list(inputs.shape)} ({reason})"
            ) from error
        size = logits.abs().clamp(min=1)
        off = float(((exported[0] - logits).abs() / size).max())
        off_p = float((exported[1] - probabilities).abs().max())
        if not max(off, off_p) <= TOLERANCE:
            amount = f"logits by {off:.1e}, probabilities by {off_p:.1e}"
            raise UserError(
                f"{out}: not written, as it differs from the model "
                f"({amount}, allowed {TOLERANCE:.0e})"
            )
        worst = max(worst, off_p)
    return worst


def _samples(info: ModelInfo) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs for the exported and the original model: mixtures of noise and smooth pictures."""
    random = torch.Generator().manual_seed(0)
    how = info.preprocessing
    for batch in BATCHES:
        if how["kind"] != "pictures":
            x = torch.randn(batch, how["features"], generator=random)
            yield x, x
            continue
        size = int(how["size"])
        for height, width in ((size, size), *SHAPES):
            coarse = torch.rand(batch, 3, 4, 4, generator=random)
            smooth = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bilinear")
            noise = torch.rand(batch, 3, height, width, generator=random)
            pictures = (255 * (0.7 * smooth + 0.3 * noise)).to(torch.uint8)
            yield pictures.permute(0, 2, 3, 1).contiguous(), resize(pictures, size)
