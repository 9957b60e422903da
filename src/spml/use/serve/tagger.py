"""What `spml serve` does with a picture's bytes: limits, decoding, probabilities and class maps."""

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

from spml.data.images.decode import FORMATS, decode_bytes, resize
from spml.errors import DataError, UserError
from spml.model import load_model
from spml.model.store import BEST
from spml.use.explain.class_maps import class_maps, from_threshold, full_colour, meaning
from spml.use.explain.overlay import overlay, plain, rounded, shown
from spml.use.stored_model import NOT_NUMBERS, own_device

NAME_LENGTH = 80  # characters of a client's file name that messages repeat


class RefusedError(DataError):
    """What a client sent cannot be taken; `status` is HTTP's word for why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Of what a client may send.

    Attributes:
        bytes: of a picture file.
        pixels: of a picture, width times height.
    """

    bytes: int = 20_000_000
    pixels: int = 50_000_000


@dataclass(frozen=True, eq=False)
class Seen:
    """What the model says of one picture.

    Attributes:
        probabilities: of each class.
        maps: (classes, h, w), counted from the thresholds of the model.
        picture: uint8 (3, H, W), as it is shown.
    """

    probabilities: npt.NDArray[np.float32]
    maps: Tensor
    picture: Tensor


class Tagger:
    """A model that tags one picture at a time, so that memory stays bounded however many are sent.

    Args:
        run: a run folder or its `best`.
        limits: of what is sent.
    """

    def __init__(self, run: Path, limits: Limits) -> None:
        self.model, self.info = load_model(run)
        if self.info.preprocessing["kind"] != "pictures":
            raise UserError(f"{run}: a model of feature vectors; serve shows pictures")
        at = Path(run).resolve()
        self.limits, self.name = limits, at.parent.name if at.name == BEST else at.name
        self.device = own_device()
        self.model.to(self.device)
        self.calibration = self.info.calibrate()
        self._one_at_a_time = threading.Lock()
        self.see(
            _blank()
        )  # what the model cannot do is told now, not to the first who sends a picture

    def see(self, data: bytes, name: str = "picture") -> Seen:
        """Probabilities and maps of a picture file's bytes; RefusedError where they are none, or too large a one."""
        with self._one_at_a_time:
            picture = self._decode(data, _short(name))
            x = resize(picture, int(self.info.preprocessing["size"]))
            with torch.inference_mode():
                logits, maps = class_maps(self.model, x[None].to(self.device))
                calibrated = self.calibration(logits.float().cpu())[0]
            if not torch.isfinite(calibrated).all():
                raise UserError(NOT_NUMBERS)
            evidence = from_threshold(self.model, self.info, maps[0].float().cpu())
            return Seen(calibrated.sigmoid().numpy(), evidence, shown(picture))

    def tags(
        self, probabilities: Sequence[float], thresholds: Sequence[float] | None = None
    ) -> list[str]:
        """Classes at or above their thresholds, the most probable first; the model's own thresholds when None."""
        cuts = self.info.thresholds if thresholds is None else thresholds
        order = np.argsort(-np.asarray(probabilities), kind="stable")
        return [self.info.classes[i] for i in order if probabilities[i] >= np.float32(cuts[i])]

    def answer(self, seen: Seen) -> dict[str, Any]:
        """What the HTTP endpoint says of a picture."""
        values = [round(float(p), 6) for p in seen.probabilities]
        return {
            "classes": self.info.classes,
            "probabilities": values,
            "thresholds": self.info.thresholds,
            "tags": self.tags(seen.probabilities.tolist()),
        }

    def about(self) -> dict[str, Any]:
        """What the HTTP endpoint says of the model: no path of the host."""
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
        """A class's map over the picture, as a data address that needs no file."""
        values = seen.maps[column]
        name, said = self.info.classes[column], f"{seen.probabilities[column]:.2f}"
        note = f"map {rounded(values.min())} to {rounded(values.max())}"
        full = full_colour(
            self.model, values[None]
        )  # one class is looked at: its own strongest place
        return data_address(overlay(seen.picture, values, full, name, said, note))

    def view(self, seen: Seen) -> str:
        """The picture as it is shown, as a data address."""
        return data_address(plain(seen.picture))

    def meaning(self) -> str:
        """What the maps show, in words."""
        return meaning(self.model)

    def _decode(self, data: bytes, name: str) -> Tensor:
        if not data:
            raise RefusedError(400, f"{name}: no bytes came; send a picture file")
        if len(data) > self.limits.bytes:
            raise RefusedError(
                413, f"{name}: above {self.limits.bytes / 1e6:g} MB; send a smaller file"
            )
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:  # reads the header alone
                pixels = image.width * image.height
        except Image.DecompressionBombError:
            pixels = self.limits.pixels + 1
        except Exception:  # Pillow has many errors for what is no picture
            raise RefusedError(
                415,
                f"{name}: not a picture that can be read; send JPEG, PNG, WebP, GIF, BMP or TIFF",
            ) from None
        if pixels > self.limits.pixels:
            raise RefusedError(
                413,
                f"{name}: above {self.limits.pixels / 1e6:g} megapixels; send a smaller picture",
            )
        try:
            return decode_bytes(
                bytearray(data), Path(name), upright=bool(self.info.preprocessing["upright"])
            )
        except DataError as error:
            raise RefusedError(415, str(error)) from None


def _blank() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (1, 1)).save(buffer, "PNG")
    return buffer.getvalue()


def data_address(image: Image.Image) -> str:
    """A picture within its own address."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _short(name: str) -> str:
    """A client's file name on one line, without folders."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in name).split())
    return line.replace("\\", "/").rpartition("/")[2][-NAME_LENGTH:] or "picture"
