"""Decoding picture files to uint8, at the size training takes."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from spml.errors import DataError

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})


def decode(path: Path, size: int | None = None, *, upright: bool = True) -> Tensor:
    """A picture as uint8 (3, height, width).

    Args:
        path: JPEG, PNG, WebP, GIF (its first frame), BMP or TIFF.
        size: height and width to resize to, the aspect not kept, as the benchmark protocol does; None leaves it.
        upright: turn it as its EXIF orientation says.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if not data:
        raise DataError(f"{path}: the file is empty; replace or remove it")
    picture = _decode(path, data, upright)
    return picture if size is None else resize(picture, size)


def resize(pictures: Tensor, size: int) -> Tensor:
    """uint8 (..., 3, H, W) to (..., 3, size, size): antialiased bilinear, as Pillow's to one grey level."""
    if pictures.shape[-2:] == (size, size):
        return pictures
    batch = pictures if pictures.ndim == 4 else pictures[None]
    resized = F.interpolate(batch, size=(size, size), mode="bilinear", antialias=True)
    return resized if pictures.ndim == 4 else resized[0]


def _decode(path: Path, data: bytes, upright: bool) -> Tensor:
    from torchvision.io import ImageReadMode, decode_image

    if data[:2] == b"BM" or data[:4] in (b"II*\0", b"MM\0*"):
        return _decode_with_pillow(path, data)
    try:
        buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        picture: Tensor = decode_image(buffer, mode=ImageReadMode.RGB, apply_exif_orientation=upright)
    except RuntimeError as error:
        reason = str(error).splitlines()[0].rpartition(": ")[2].rpartition(".cpp:")[2].partition(", ")[2]
        raise DataError(f"{path}: not a picture that can be read ({reason or error}); replace or remove it") from error
    if picture.ndim == 4:
        picture = picture[0]
    return (picture.to(torch.int32) >> 8).to(torch.uint8) if picture.dtype == torch.uint16 else picture


def _decode_with_pillow(path: Path, data: bytes) -> Tensor:
    import io

    import numpy as np
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = np.array(image.convert("RGB"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
        raise DataError(f"{path}: not a picture that can be read ({error}); replace or remove it") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
