"""Tag a picture or a feature vector for `spml serve`: limits, decoding, scores and class maps."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spml.data.images.decode import count_pixels, decode_bytes, resize
from spml.data.names import OF_PREDICTIONS
from spml.errors import DataError, UserError
from spml.model import load_model
from spml.model.scoring import infer
from spml.model.store import BEST
from spml.use.explain.class_maps import ScoredPicture, meaning
from spml.use.predict.writers import columns
from spml.use.stored_model import calibrated, own_device

NAME_LENGTH = 80  # characters of a client's file name that messages repeat


class RefusedError(DataError):
    """A client's request is refused; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Limits of a client's picture."""

    bytes: int = 20_000_000  # of the file
    pixels: int = 50_000_000  # width times height


class Tagger:
    """A model that tags one item at a time, so that memory stays bounded."""

    def __init__(self, run: Path, limits: Limits) -> None:
        self.model, self.info = load_model(run)
        folder = Path(run).resolve()
        self.limits = limits
        self.name = folder.parent.name if folder.name == BEST else folder.name
        self.device = own_device()
        self.model.to(self.device)
        self._one_at_a_time = threading.Lock()
        how = self.info.preprocessing
        self.features: int | None = how["features"] if how["kind"] == "features" else None
        self._scored(self._nothing())  # raises errors of the model now, not at the first request
        self.has_maps = self.features is None
        if self.has_maps:
            try:
                ScoredPicture(self.model, self.info, self._nothing())
            except UserError:  # the backbone has no feature map
                self.has_maps = False

    def answer(self, data: bytes, name: str = "picture") -> dict[str, Any]:
        """Return the HTTP answer for a picture file, or for feature values as JSON."""
        with self._one_at_a_time:
            logits, probabilities = self._scored(self._input(data, name))
        tagged = self.info.tag_rule.tagged(logits)[0]
        order = np.argsort(-probabilities, kind="stable")
        return {
            "classes": self.info.classes,
            "probabilities": [round(float(p), 6) for p in probabilities],
            "thresholds": self.info.thresholds,
            "tags": [self.info.classes[i] for i in order if tagged[i]],
        }

    def class_map(self, data: bytes, name: str, label: str) -> bytes:
        """Return the PNG of a class's map over a picture."""
        if not self.has_maps:
            raise RefusedError(404, "this model has no class maps")
        if label not in self.info.classes:
            raise RefusedError(400, "the address must name a class, as in ?class=NAME")
        column = self.info.classes.index(label)
        with self._one_at_a_time:
            scored = ScoredPicture(self.model, self.info, self._picture(data, name))
            image, _ = scored.overlay(column, scored.maps[column])
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()

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
            "features": self.features,
            "training": training,
            "versions": info.versions,
            "limits": {"bytes": self.limits.bytes, "pixels": self.limits.pixels},
        }

    def for_page(self) -> dict[str, Any]:
        """Return what the page needs besides answers."""
        return {
            **self.about(),
            "meaning": meaning(self.model) if self.has_maps else None,
            "header": [*OF_PREDICTIONS, *columns(self.info.classes)],
        }

    def _scored(self, x: Tensor) -> tuple[Tensor, Any]:
        """Logits (1, classes), and calibrated probabilities as float32 (classes)."""
        logits = infer(self.model, x[None], self.device).float().cpu()
        return logits, calibrated(self.info, logits)[0].sigmoid().numpy()

    def _nothing(self) -> Tensor:
        if self.features is not None:
            return torch.zeros(self.features)
        size = int(self.info.preprocessing["size"])
        return torch.zeros(3, size, size, dtype=torch.uint8)

    def _input(self, data: bytes, name: str) -> Tensor:
        if self.features is not None:
            return _vector(data, self.features)
        return resize(self._picture(data, name), int(self.info.preprocessing["size"]))

    def _picture(self, data: bytes, client_name: str) -> Tensor:
        name = _short(client_name)
        limits = self.limits
        if not data:
            raise RefusedError(400, f"{name}: no bytes came; send a picture file")
        if len(data) > limits.bytes:
            most = f"{limits.bytes / 1e6:g} MB"
            raise RefusedError(413, f"{name}: above {most}; send a smaller file")
        pixels = count_pixels(data)
        if pixels is None:
            kinds = "JPEG, PNG, WebP, GIF, BMP or TIFF"
            raise RefusedError(415, f"{name}: not a picture that can be read; send {kinds}")
        if pixels > limits.pixels:
            most = f"{limits.pixels / 1e6:g} megapixels"
            raise RefusedError(413, f"{name}: above {most}; send a smaller picture")
        try:
            return decode_bytes(bytearray(data), Path(name))
        except DataError as error:
            raise RefusedError(415, str(error)) from None


def _vector(data: bytes, count: int) -> Tensor:
    wanted = f'send {{"features": [...]}} as JSON, with {count} finite numbers'
    try:
        with np.errstate(over="ignore"):  # infinite values are refused below
            values = np.asarray(json.loads(data)["features"], np.float64).astype(np.float32)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise RefusedError(400, f"the feature values cannot be read; {wanted}") from None
    if values.shape != (count,) or not np.isfinite(values).all():
        raise RefusedError(400, f"the feature values do not fit the model; {wanted}")
    return torch.from_numpy(values)


def _short(name: str) -> str:
    """Shorten a client's file name to one line without folders."""
    printable = "".join(sign if sign.isprintable() else " " for sign in name)
    line = " ".join(printable.split())
    return line.replace("\\", "/").rpartition("/")[2][-NAME_LENGTH:] or "picture"
