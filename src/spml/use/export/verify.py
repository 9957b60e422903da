"""Check that an exported model agrees with the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from spml.data.images.decode import resize
from spml.errors import UserError
from spml.model import Classifier, ModelInfo

TOLERANCE = 1e-4  # of a probability; relative for logits above 1
BATCHES = (1, 2, 5)
SHAPES = ((1, 1), (37, 90), (480, 360))  # height and width of pictures, besides the model's own

Run = Callable[[Tensor], tuple[Tensor, ...]]


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
