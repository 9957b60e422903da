"""Tag a picture for `spml serve`: limits, decoding, probabilities and class maps."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from spml.data.images.decode import count_pixels, decode_bytes, resize
from spml.errors import DataError, UserError
from spml.model import load_model
from spml.model.scoring import infer
from spml.model.store import BEST, tagged
from spml.use.explain.class_maps import class_maps, from_threshold, full_colour, meaning
from spml.use.explain.overlay import overlay, plain, rounded, shown
from spml.use.stored_model import NOT_NUMBERS, own_device

NAME_LENGTH = 80  # characters of a client's file name that messages repeat


class RefusedError(DataError):
    """A client's picture is refused; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Limits of a client's picture.

    Attributes:
        bytes: length of the file.
        pixels: width times height.
    """

    bytes: int = 20_000_000
    pixels: int = 50_000_000


@dataclass(frozen=True, eq=False)
class Seen:
    """Scores of one picture.

    Attributes:
        logits: one per class, as the model gives them.
        probabilities: one per class, calibrated.
        maps: (classes, h, w), relative to the model's thresholds.
        picture: uint8 (3, H, W) for display.
    """

    logits: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float32]
    maps: Tensor
    picture: Tensor


class Tagger:
    """A model that tags one picture at a time, so that memory stays bounded.

    Args:
        run: a run folder or its `best`.
        limits: limits of a client's picture.
    """

    def __init__(self, run: Path, limits: Limits) -> None:
        self.model, self.info = load_model(run)
        if self.info.preprocessing["kind"] != "pictures":
            raise UserError(f"{run}: a model of feature vectors; serve shows pictures")
        folder = Path(run).resolve()
        self.limits = limits
        self.name = folder.parent.name if folder.name == BEST else folder.name
        self.device = own_device()
        self.model.to(self.device)
        self.calibration = self.info.calibrate()
        self._one_at_a_time = threading.Lock()
        self.see(_blank())  # raises errors of the model now, not at the first request

    def see(self, data: bytes, name: str = "picture") -> Seen:
        """Return probabilities and maps of a picture file; raise RefusedError for other bytes."""
        with self._one_at_a_time:
            picture = self._decode(data, _short(name))
            x = resize(picture, int(self.info.preprocessing["size"]))
            logits, maps = infer(lambda x: class_maps(self.model, x), x[None], self.device)
            logits = logits.float().cpu()
            calibrated = self.calibration(logits)[0]
            if not torch.isfinite(calibrated).all():
                raise UserError(NOT_NUMBERS)
            evidence = from_threshold(self.model, self.info, maps[0].float().cpu())
            return Seen(logits[0].numpy(), calibrated.sigmoid().numpy(), evidence, shown(picture))

    def tagged(self, seen: Seen, thresholds: Sequence[float] | None = None) -> list[bool]:
        """Whether each class is a tag, by the model's own thresholds or by others."""
        rule = self.info.tag_rule
        cuts = rule.thresholds if thresholds is None else thresholds
        return [bool(tag) for tag in tagged(rule.logits(seen.logits[None]), cuts)[0]]

    def tags(self, seen: Seen, thresholds: Sequence[float] | None = None) -> list[str]:
        """Tagged classes, the most probable first."""
        present = self.tagged(seen, thresholds)
        order = np.argsort(-seen.probabilities, kind="stable")
        return [self.info.classes[i] for i in order if present[i]]

    def answer(self, seen: Seen) -> dict[str, Any]:
        """Return the HTTP answer for a picture."""
        values = [round(float(p), 6) for p in seen.probabilities]
        return {
            "classes": self.info.classes,
            "probabilities": values,
            "thresholds": self.info.thresholds,
            "tags": self.tags(seen),
        }

    def about(self) -> dict[str, Any]:
        """Return the HTTP description of the model, without paths of the host."""
        info = self.info
        training = {
            name: info.training[name]
            for name in ("method", "selection", "val_map")
            if name in info.training
        }
        return {
            "name": self.name,
            "classes": info.classes,
            "thresholds": info.thresholds,
            "calibrated": info.calibration is not None,
            "backbone": info.backbone,
            "size": info.preprocessing["size"],
            "training": training,
            "versions": info.versions,
            "limits": {"bytes": self.limits.bytes, "pixels": self.limits.pixels},
        }

    def heat(self, seen: Seen, column: int) -> str:
        """Draw a class's map over the picture, as a data URL."""
        values = seen.maps[column]
        name, probability = self.info.classes[column], f"{seen.probabilities[column]:.2f}"
        note = f"map {rounded(values.min())} to {rounded(values.max())}"
        full = full_colour(self.model, values[None])  # scaled to the maximum of this class
        return data_address(overlay(seen.picture, values, full, name, probability, note))

    def view(self, seen: Seen) -> str:
        """Return the picture for display, as a data URL."""
        return data_address(plain(seen.picture))

    def meaning(self) -> str:
        """Explain what the maps show."""
        return meaning(self.model)

    def _decode(self, data: bytes, name: str) -> Tensor:
        if not data:
            raise RefusedError(400, f"{name}: no bytes came; send a picture file")
        if len(data) > self.limits.bytes:
            raise RefusedError(
                413, f"{name}: above {self.limits.bytes / 1e6:g} MB; send a smaller file"
            )
        pixels = count_pixels(data)
        if pixels is None:
            raise RefusedError(
                415,
                f"{name}: not a picture that can be read; send JPEG, PNG, WebP, GIF, BMP or TIFF",
            )
        if pixels > self.limits.pixels:
            raise RefusedError(
                413,
                f"{name}: above {self.limits.pixels / 1e6:g} megapixels; send a smaller picture",
            )
        try:
            return decode_bytes(bytearray(data), Path(name))
        except DataError as error:
            raise RefusedError(415, str(error)) from None


def _blank() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (1, 1)).save(buffer, "PNG")
    return buffer.getvalue()


def data_address(image: Image.Image) -> str:
    """Encode a picture as a data URL."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _short(name: str) -> str:
    """Shorten a client's file name to one line without folders."""
    printable = "".join(sign if sign.isprintable() else " " for sign in name)
    line = " ".join(printable.split())
    return line.replace("\\", "/").rpartition("/")[2][-NAME_LENGTH:] or "picture"
