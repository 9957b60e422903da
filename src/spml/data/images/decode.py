"""Decode picture files to uint8 tensors, all through `decode_bytes`."""

from __future__ import annotations

import io
import stat
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from spml.errors import FEATURES, DataError

# Pillow's names. Pillow reads other formats too, and runs external programs for some.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
PIXEL_LIMIT = 178_956_970  # Pillow's own limit: 0.5 GB as uint8 RGB
JPEG = b"\xff\xd8\xff"  # first bytes of a JPEG file
# Markers before the coded pixels and after them; coded pixels never contain these bytes.
SCAN, END = b"\xff\xda", b"\xff\xd9"
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers followed by height and width
# Upper bound of pixels per byte: 64 pixels need at least one bit, and subsampling packs less than
# four times as many.
JPEG_PIXELS = 2048

Image.init()  # once, before threads call it
# Pictures above PIXEL_LIMIT raise an error, so a warning below it is noise.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def decode(path: Path, size: int | None = None) -> Tensor:
    """Read a picture file as uint8 (3, height, width), stored channels last.

    The picture is rotated by its EXIF orientation.

    Args:
        path: JPEG, PNG, WebP, GIF (first frame), BMP or TIFF.
        size: height and width to resize to without keeping the aspect ratio, as the benchmark
            protocol does; None keeps the picture's own size.
    """
    return decode_bytes(read_file(path), path, size)


def read_file(path: Path) -> bytearray:
    """Read the bytes of a picture file; raise DataError if it is unreadable or empty."""
    try:
        status = path.stat()
        ordinary = stat.S_ISREG(status.st_mode)  # reading a pipe would block forever
        data = _bytes_of(path, status.st_size) if ordinary else bytearray()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        remedy = "check the path" if path.suffix else f"check the path; {FEATURES}"
        raise DataError(f"{path}: cannot be read ({reason}); {remedy}") from error

    if not ordinary:
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no ordinary file"
        raise DataError(f"{path}: {kind}, not a picture")
    if not data:
        raise DataError(f"{path}: the file is empty; replace or remove it")
    return data


def _bytes_of(path: Path, expected: int) -> bytearray:
    """Read a whole file in few system calls: each one makes a decoding thread wait for the GIL."""
    data = bytearray(expected + 1)
    with path.open("rb", buffering=0) as file:
        count = file.readinto(data)
    if count != expected:  # another process writes the file, or the disk returns it in parts
        return bytearray(path.read_bytes())
    del data[count:]
    return data


def decode_bytes(data: bytearray, path: Path, size: int | None = None) -> Tensor:
    """Decode a picture file's bytes as `decode` does; `path` only appears in messages."""
    try:
        picture = _decode_jpeg(data)
        if picture is None:
            _refuse_truncated(data)
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:  # reads the header only
                _check_pixels(image.width, image.height)
                picture = _decode_with_pillow(image)
    except Exception as error:  # Pillow raises many types for a broken file
        reason = _reason(error, data)
        message = f"{path}: not a picture that can be read ({reason}); replace or remove it"
        raise DataError(message) from error
    return picture if size is None else resize(picture, size)


def count_pixels(data: bytes | bytearray) -> int | None:
    """Return width times height from the header, at most PIXEL_LIMIT + 1; None if unknown."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:  # reads the header only
            return image.width * image.height
    except Image.DecompressionBombError:
        return PIXEL_LIMIT + 1
    except Exception:  # Pillow raises many types for a broken file
        return None


def channels_last(pictures: Tensor) -> Tensor:
    """View (..., 3, H, W) as (..., H, W, 3): the order decoders write and models read fastest."""
    return pictures.movedim(-3, -1)


def channels_first(pixels: Tensor) -> Tensor:
    """View (..., H, W, 3) as (..., 3, H, W) without moving values."""
    return pixels.movedim(-1, -3)


def resize(pictures: Tensor, size: int) -> Tensor:
    """Resize uint8 (..., 3, H, W) to (..., 3, size, size), antialiased bilinear.

    The result equals Pillow's to one grey level. Both round between the two passes, Pillow with
    finer weights: of 180 million values of VOC2012's pictures, 4 % differed by one level on one
    processor, 0.15 % on another, and three values by two.
    """
    if pictures.shape[-2:] == (size, size):
        return pictures
    if pictures.ndim == 4:
        return F.interpolate(pictures, size=(size, size), mode="bilinear", antialias=True)
    batch = channels_first(channels_last(pictures)[None])  # with the strides of a batch
    return F.interpolate(batch, size=(size, size), mode="bilinear", antialias=True)[0]


def _decode_jpeg(data: bytearray) -> Tensor | None:
    """Decode a JPEG by torchvision: Pillow's pixels, faster. None if torchvision cannot decode it.

    JPEG only: torchvision 0.29 can crash the process on a damaged PNG.
    """
    from torchvision.io import ImageReadMode, decode_jpeg

    declared = jpeg_size(data)
    if declared is None:
        return None
    width, height = declared
    _check_pixels(width, height)
    if width * height > JPEG_PIXELS * len(data):
        raise ValueError(f"{len(data):,} bytes cannot hold the {width} x {height} pixels it claims")

    try:
        buffer = torch.frombuffer(data, dtype=torch.uint8)
        picture: Tensor = decode_jpeg(buffer, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    except RuntimeError:
        return None  # Pillow may decode it, or explain why not
    return picture


def jpeg_size(data: bytearray) -> tuple[int, int] | None:
    """Read width and height from a JPEG header, 20 times faster than Pillow; None if unusual."""
    at = 2 if data.startswith(JPEG) else len(data)
    while at + 9 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if kind in FRAMES:
            height = int.from_bytes(data[at + 5 : at + 7], "big")
            width = int.from_bytes(data[at + 7 : at + 9], "big")
            return width, height
        if kind < 0xC0 or 0xD0 <= kind <= 0xD9 or length < 2:  # a marker without length, or invalid
            return None
        at += 2 + length
    return None


def _refuse_truncated(data: bytearray) -> None:
    """Raise ValueError for a JPEG without end marker, which Pillow accepts if zeros follow."""
    # The last markers count: a thumbnail in the header has both markers of its own.
    if data.startswith(JPEG) and data.rfind(END) < data.rfind(SCAN):
        raise ValueError("truncated")


def _check_pixels(width: int, height: int) -> None:
    if width * height > PIXEL_LIMIT:
        raise Image.DecompressionBombError


def _decode_with_pillow(image: Image.Image) -> Tensor:
    image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F"):
        raise ValueError(
            "its pixels are 32-bit numbers of unknown range; save it with 8 or 16 bits"
        )
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


def _reason(error: Exception, data: bytearray) -> str:
    """Explain in a few words why a picture cannot be decoded."""
    if isinstance(error, UnidentifiedImageError):
        if data[4:8] == b"ftyp":  # the container of HEIC and AVIF
            return "HEIC or AVIF, as phones write it: save it as JPEG"
        return "no picture format that is known"
    if isinstance(error, Image.DecompressionBombError):
        return f"above {PIXEL_LIMIT / 1e6:.0f} megapixels"
    text = " ".join(str(error).split())
    if "truncated" in text.lower():
        return "the file is cut short"
    return text[:150] or type(error).__name__
