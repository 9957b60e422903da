"""Class maps: where in a picture the evidence for each class lies, drawn over the picture."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional as F

from spml.data.images.decode import resize
from spml.errors import UserError
from spml.model import Classifier, ModelInfo
from spml.model.classifier import BoostLU
from spml.model.query import QueryHead
from spml.model.scoring import infer
from spml.use.stored_model import calibrated

EVIDENCE = (
    "evidence in logits above the class's threshold; "
    "its mean over the picture is how far the class is above it"
)
ATTENTION = "attention of the last layer: where the class looks, not what it finds there"
LEAST = 1.0  # logits: full colour means at least this much, so that weak evidence looks weak
SIDE = 480  # the longer side of a picture as shown, in pixels
THINNEST = 8  # the shorter side at least
STRIP = 68  # height of the legend below it
NARROWEST = 390  # width of the legend
STRENGTH = 0.78  # opacity of full colour; 0 of the map is transparent
COVER = 0.7  # exponent below 1, so that weak evidence is visible
COLOURS = "inferno"  # perceptually uniform; lighter is more, also in grey


def is_evidence(model: Classifier) -> bool:
    """Whether class maps hold logits, whose mean is the class's logit, and not attention."""
    return not isinstance(model.head, QueryHead)


def meaning(model: Classifier) -> str:
    """Meaning of the values that `from_threshold` returns, as text."""
    return EVIDENCE if is_evidence(model) else ATTENTION


def full_colour(model: Classifier, maps: Tensor) -> float:
    """Value drawn in full colour in all maps (classes, h, w) of one picture; 0 has no colour."""
    least = LEAST if is_evidence(model) else 1 / maps[0].numel()
    return max(least, float(maps.max()))


def class_maps(model: Classifier, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, classes) and a map of each class (B, classes, h, w).

    A linear head on mean-pooled features is the mean of the same layer at each position, so its map
    is exact: the mean over positions is the logit, bias included. So is that of the BoostLU head,
    with the boosted values. A query head mixes positions before it reads them and has no such sum;
    its map is the attention of each class in the last layer.

    Args:
        model: a model of pictures; feature vectors have no positions and raise UserError.
        x: uint8 pictures (B, 3, H, W), or floats in 0..255.
    """
    if x.ndim != 4:
        raise UserError(
            "this model takes feature vectors, which have no positions; class maps need pictures"
        )
    features = model.features(x)
    if features.ndim < 3:
        raise UserError(
            "this backbone gives one vector a picture and no feature map; class maps need a map"
        )
    head, positions = model.head, model.positions(features)
    logits: Tensor = head(model.head_input(features))
    if isinstance(head, QueryHead):
        maps = head.attention(positions)
    elif isinstance(head, BoostLU):
        maps = head.boosted(positions).transpose(1, 2)
    else:
        maps = F.linear(positions, head.weight, head.bias).transpose(1, 2)
    return logits, maps.reshape(*logits.shape, *model.grid(features))


def from_threshold(model: Classifier, info: ModelInfo, maps: Tensor) -> Tensor:
    """Maps (classes, h, w) minus the logit at which their class becomes a tag.

    Attention is returned unchanged. A calibration may put that logit below 0: evidence below 0 then
    supports the class too.
    """
    return maps - info.cuts()[:, None, None] if is_evidence(model) else maps


def enlarged(maps: Tensor, height: int, width: int) -> Tensor:
    """Maps (..., h, w) interpolated to the picture's size, within the range of their values."""
    flat = maps.float().reshape(1, -1, *maps.shape[-2:])
    large = F.interpolate(flat, size=(height, width), mode="bicubic", align_corners=False)
    low, high = flat.amin(dim=(2, 3), keepdim=True), flat.amax(dim=(2, 3), keepdim=True)
    return torch.minimum(torch.maximum(large, low), high).reshape(*maps.shape[:-2], height, width)


class ScoredPicture:
    """Probabilities, tags and class maps of one picture.

    Attributes:
        picture: uint8 (3, H, W) at the size of the page.
        maps: (classes, h, w), relative to the model's thresholds.
        probabilities: one per class, calibrated.
        tagged: whether each class is a tag.
        order: columns, the most probable class first.
    """

    def __init__(self, model: Classifier, info: ModelInfo, picture: Tensor) -> None:
        self.model, self.info, self.picture = model, info, shown(picture)
        x = resize(picture, int(info.preprocessing["size"]))
        device = next(model.parameters()).device
        logits, maps = infer(lambda x: class_maps(model, x), x[None], device)
        logits = logits.float().cpu()
        scores = calibrated(info, logits)[0]
        self.maps = from_threshold(model, info, maps[0].float().cpu())
        self.probabilities: list[float] = scores.sigmoid().tolist()
        self.tagged = info.tag_rule.tagged(logits)[0]
        self.order: list[int] = scores.argsort(descending=True, stable=True).tolist()

    def overlay(self, column: int, scale: Tensor) -> tuple[Image.Image, str]:
        """Draw a class's map over the picture, and describe it in one line.

        The maximum of the maps `scale` (..., h, w) has full colour.
        """
        name, probability = self.info.classes[column], f"{self.probabilities[column]:.2f}"
        values = self.maps[column]
        full = full_colour(self.model, scale.reshape(-1, *values.shape))
        span = f"{rounded(values.min())} to {rounded(values.max())}"
        note = f"threshold {self.info.thresholds[column]:.2f}, map {span}"
        image = overlay(self.picture, values, full, name, probability, note)
        return image, f"{name} {probability}, {note}"


def shown(picture: Tensor, side: int = SIDE) -> Tensor:
    """A picture (3, H, W) resized so that its longer side fits; keeps the aspect ratio."""
    height, width = picture.shape[-2:]
    scale = side / max(height, width)
    size = (max(THINNEST, round(height * scale)), max(THINNEST, round(width * scale)))
    return F.interpolate(picture[None], size=size, mode="bilinear", antialias=True)[0]


def overlay(
    picture: Tensor, values: Tensor, full: float, name: str, probability: str, note: str
) -> Image.Image:
    """Draw the map in colour over the picture in grey, with a legend: name, note and colour scale.

    `full` is the value drawn in full colour; 0 and below have none.
    """
    height, width = picture.shape[-2:]
    large = enlarged(values, height, width)
    level = (large / full).clamp(0, 1).numpy()[..., None]
    grey = np.asarray(plain(picture).convert("L"), np.float32)[..., None]
    cover = STRENGTH * level**COVER
    mixed = (1 - cover) * grey + cover * colours(level[..., 0])
    canvas = Image.new("RGB", (max(width, NARROWEST), height + STRIP), "white")
    canvas.paste(Image.fromarray(np.rint(mixed).astype(np.uint8)), ((canvas.width - width) // 2, 0))
    _legend(canvas, height, name, probability, note, full)
    return canvas


def plain(picture: Tensor) -> Image.Image:
    """An image of a uint8 or float picture (3, H, W)."""
    return Image.fromarray(picture.to(torch.uint8).permute(1, 2, 0).contiguous().numpy())


def rounded(value: float | Tensor) -> str:
    """A value of a map to two digits: 250, not 2.5e+02."""
    return f"{float(f'{float(value):.2g}'):g}"


def colours(level: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Colours 0..255 (..., 3) of levels 0..1."""
    from matplotlib import colormaps

    return 255 * colormaps[COLOURS](level)[..., :3].astype(np.float32)


def _legend(
    canvas: Image.Image, top: int, name: str, probability: str, note: str, full: float
) -> None:
    draw, margin, bar = ImageDraw.Draw(canvas), 10, 90
    large, small = (
        ImageFont.truetype(_font(kind), size) for kind, size in (("-Bold", 20), ("", 16))
    )
    right = canvas.width - margin
    width = right - bar - 2 * margin
    title = _fitted(draw, name, large, width - round(draw.textlength(f"  {probability}", large)))
    draw.text((margin, top + 10), f"{title}  {probability}", "#1f2328", large)
    draw.text((margin, top + 38), _fitted(draw, note, small, width), "#5b6470", small)
    levels = np.linspace(0, 1, bar, dtype=np.float32)[None].repeat(16, axis=0)
    canvas.paste(Image.fromarray(colours(levels).astype(np.uint8)), (right - bar, top + 14))
    for anchor, at, text in (("la", right - bar, "0"), ("ra", right, rounded(full))):
        draw.text((at, top + 38), text, "#5b6470", small, anchor=anchor)


def writable(name: str) -> bool:
    """Whether the legend's font can write a name; it lacks CJK, Hindi and Thai characters."""
    return all(ord(letter) in _letters() for letter in name if letter.isprintable())


@cache
def _letters() -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(_font("-Bold")).get_charmap())


def _font(kind: str) -> str:
    import matplotlib

    return str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"DejaVuSans{kind}.ttf")


def _fitted(draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """The text, shortened to fit."""
    line = short = " ".join(text.split())
    while line and draw.textlength(short, font) > width:
        line = line[:-1]
        short = line + "…"
    return short
