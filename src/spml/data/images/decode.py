"""Decoding picture files to uint8, at the size training takes."""

from __future__ import annotations

import io
import os
import stat
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from spml.errors import DataError

FORMATS = (
    "JPEG",
    "PNG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
)  # Pillow's names; it knows others that run programs
PIXEL_LIMIT = 178_956_970  # where Pillow refuses too: 0.5 GB as uint8 RGB
JPEG = b"\xff\xd8\xff"  # what such a file begins with
SCAN, END = (
    b"\xff\xda",
    b"\xff\xd9",
)  # marks in it before pixels and after the last; no pixels are coded so
FRAMES = frozenset(range(0xC0, 0xD0)) - {
    0xC4,
    0xC8,
    0xCC,
}  # marks in it that height and width follow
JPEG_PIXELS = 2048  # in a byte of it, at most: 64 take a bit or more, and less than four times as many in any sampling

Image.init()  # once, before threads do
warnings.filterwarnings(
    "ignore", category=Image.DecompressionBombWarning
)  # there is a limit, and it is an error


def decode(path: Path, size: int | None = None, *, upright: bool = True) -> Tensor:
    """A picture as uint8 (3, height, width), in memory pixel by pixel.

    Args:
        path: JPEG, PNG, WebP, GIF (its first frame), BMP or TIFF.
        size: height and width to resize to, the aspect not kept, as the benchmark protocol does; None leaves it.
        upright: turn it as its EXIF orientation says.
    """
    return decode_bytes(read_file(path), path, size, upright=upright)


def read_file(path: Path) -> bytearray:
    """The bytes of a picture file; DataError where it cannot be read or is empty."""
    try:
        about = path.stat()
        mode = about.st_mode
        ordinary = stat.S_ISREG(mode)  # reading a pipe would wait for ever
        data = _bytes_of(path, about.st_size) if ordinary else bytearray()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason}); check the path") from error
    if not ordinary:
        raise DataError(
            f"{path}: {'a folder' if stat.S_ISDIR(mode) else 'no ordinary file'}, not a picture"
        )
    if not data:
        raise DataError(f"{path}: the file is empty; replace or remove it")
    return data


def _bytes_of(path: Path, expected: int) -> bytearray:
    """All that is in a file, with few calls: threads that decode hand Python on at each, and wait for it after."""
    handle = os.open(path, os.O_RDONLY)
    try:
        data = bytearray(expected + 1)
        count = os.readv(handle, [data])
    finally:
        os.close(handle)
    if count != expected:  # it is being written, or the disk gives it in parts
        return bytearray(path.read_bytes())
    del data[count:]
    return data


def decode_bytes(
    data: bytearray, path: Path, size: int | None = None, *, upright: bool = True
) -> Tensor:
    """A picture file's bytes as `decode` gives them; `path` is for messages."""
    try:
        picture = _decode_jpeg(data, upright)
        if picture is None:
            _refuse_cut(data)
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:  # reads the header alone
                _check_pixels(image.width, image.height)
                picture = _decode_with_pillow(image, upright)
    except Exception as error:  # Pillow has many errors for a broken file
        reason = _reason(error, data)
        raise DataError(
            f"{path}: not a picture that can be read ({reason}); replace or remove it"
        ) from error
    return picture if size is None else resize(picture, size)


def channels_last(pictures: Tensor) -> Tensor:
    """(..., 3, H, W) seen as (..., H, W, 3), which is how decoders write them and how models take them in fastest."""
    return pictures.movedim(-3, -1)


def channels_first(pixels: Tensor) -> Tensor:
    """(..., H, W, 3) seen as (..., 3, H, W); no value is moved."""
    return pixels.movedim(-1, -3)


def resize(pictures: Tensor, size: int) -> Tensor:
    """uint8 (..., 3, H, W) to (..., 3, size, size): antialiased bilinear, as Pillow's to one grey level.

    Both round between the two passes, Pillow with finer weights: of 180 million values of VOC2012's pictures, 4 % were
    one level off on one processor, 0.15 % on another, and three values two.
    """
    if pictures.shape[-2:] == (size, size):
        return pictures
    batch = (
        pictures if pictures.ndim == 4 else channels_first(channels_last(pictures)[None])
    )  # with a batch's strides
    resized = F.interpolate(batch, size=(size, size), mode="bilinear", antialias=True)
    return resized if pictures.ndim == 4 else resized[0]


def _decode_jpeg(data: bytearray, upright: bool) -> Tensor | None:
    """A JPEG by torchvision: the pixels that Pillow gives, sooner. None for what it does not know how to decode.

    JPEG alone: of a damaged PNG, torchvision 0.29 can crash the process.
    """
    from torchvision.io import ImageReadMode, decode_jpeg

    claimed = jpeg_size(data)
    if claimed is None:
        return None
    width, height = claimed
    _check_pixels(width, height)
    if width * height > JPEG_PIXELS * len(data):
        raise ValueError(f"{len(data):,} bytes cannot hold the {width} x {height} pixels it claims")
    try:
        buffer = torch.frombuffer(data, dtype=torch.uint8)
        picture: Tensor = decode_jpeg(
            buffer, mode=ImageReadMode.RGB, apply_exif_orientation=upright
        )
    except RuntimeError:
        return None  # Pillow may know, or else say why in words
    return picture


def jpeg_size(data: bytearray) -> tuple[int, int] | None:
    """Width and height of a JPEG by its header, a twentieth of the work that Pillow has; None for what is unusual."""
    at = 2 if data.startswith(JPEG) else len(data)
    while at + 9 <= len(data) and data[at] == 0xFF:
        kind, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if kind in FRAMES:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(
                data[at + 5 : at + 7], "big"
            )
        if kind < 0xC0 or 0xD0 <= kind <= 0xD9 or length < 2:  # marks that stand alone, or nonsense
            return None
        at += 2 + length
    return None


def _refuse_cut(data: bytearray) -> None:
    """Raise ValueError for a JPEG without its end, which Pillow takes as whole where zeros stand in its place."""
    if data.startswith(JPEG) and data.rfind(END) < data.rfind(
        SCAN
    ):  # a small picture in its header has both
        raise ValueError("truncated")


def _check_pixels(width: int, height: int) -> None:
    if width * height > PIXEL_LIMIT:
        raise Image.DecompressionBombError


def _decode_with_pillow(image: Image.Image, upright: bool) -> Tensor:
    if upright:
        image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F"):
        raise ValueError(
            "its pixels are 32-bit numbers of unknown range; save it with 8 or 16 bits"
        )
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


def _reason(error: Exception, data: bytearray) -> str:
    """Why a picture cannot be decoded, in a few plain words."""
    if isinstance(error, UnidentifiedImageError):
        phone = data[4:8] == b"ftyp"  # the family of HEIC and AVIF
        return (
            "HEIC or AVIF, as phones write it: save it as JPEG"
            if phone
            else "no picture format that is known"
        )
    if isinstance(error, Image.DecompressionBombError):
        return f"above {PIXEL_LIMIT / 1e6:.0f} megapixels"
    text = " ".join(str(error).split())
    return (
        "the file is cut short"
        if "truncated" in text.lower()
        else text[:150] or type(error).__name__
    )
