"""Decode picture files to uint8 tensors, all through `decode_bytes`."""

from __future__ import annotations

import ctypes
import io
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from spml.data.images.store import format_bytes, free_memory
from spml.errors import FEATURES, DataError, UserError

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

# Memory that a pixel takes while its picture is decoded, at most: by Pillow, and by torchvision.
PIXEL_BYTES, JPEG_BYTES = 20, 10
STRIP = 1 << 20  # pixels that are converted at once
SHARE = 0.25  # of the free memory that decoding may take
LARGE = 64 << 20  # bytes of a picture after which the C library gives freed memory back
# Limits of this process and of its child processes: gigabytes, and pixels of a picture.
MEMORY, PIXELS = "SPML_DECODE_MEMORY", "SPML_MAX_PIXELS"

Image.init()  # once, before threads call it
# Pictures above PIXEL_LIMIT raise an error, so a warning below it is noise.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class Budget:
    """Memory that decoding may take at once, shared by all threads of the process.

    Pictures wait for their turn, in order. One that needs more than the whole budget is an error if
    the user set the budget; else it is decoded alone.
    """

    def __init__(self) -> None:
        self.taken = 0
        self._turn, self._change = threading.Lock(), threading.Condition()
        self._limit: int | None = None
        self._peak = 0

    @property
    def limit(self) -> int:
        """Bytes of the budget."""
        if MEMORY in os.environ:
            return int(float(os.environ[MEMORY]) * 1e9)
        if self._limit is None:
            free = free_memory(torch.device("cpu"))
            self._limit = 2**62 if free is None else int(SHARE * free)
        return self._limit

    @contextmanager
    def claim(self, need: int) -> Iterator[None]:
        """Hold the memory of a picture in decoding; ValueError if the budget is too small."""
        limit = self.limit
        if need > limit and MEMORY in os.environ:
            raise ValueError(
                f"decoding takes {format_bytes(need)}, and --decode-memory allows "
                f"{format_bytes(limit)}"
            )
        with self._turn, self._change:
            self._change.wait_for(lambda: not self.taken or self.taken + need <= limit)
            self.taken += need
            self._peak = max(self._peak, need)
        try:
            yield
        finally:
            with self._change:
                self.taken -= need
                give_back = not self.taken and self._peak > LARGE
                self._peak = self._peak if self.taken else 0
                self._change.notify()
            if give_back:
                _trim()


BUDGET = Budget()


def set_limits(memory: float | None, pixels: float | None) -> None:
    """Set gigabytes for decoding and pixels of a picture, for child processes too."""
    limits = {"--decode-memory": (MEMORY, memory), "--max-pixels": (PIXELS, pixels)}
    for flag, (name, value) in limits.items():
        if value is not None and not 0 < value < 1e12:
            raise UserError(f"{flag} must be above 0, not {value:g}")
        if value is not None:
            os.environ[name] = str(value)
    if pixels is not None and pixels > PIXEL_LIMIT:
        raise UserError(
            f"--max-pixels {pixels:g}: pictures above {PIXEL_LIMIT:,} pixels are not read"
        )


def pixel_limit() -> int:
    """Return the largest number of pixels of a picture."""
    return min(PIXEL_LIMIT, int(float(os.environ.get(PIXELS, PIXEL_LIMIT))))


def _trim() -> None:
    """Return freed memory to the system, which glibc would keep for later pictures."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


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
        picture = _decode_jpeg(data, size)
        if picture is None:
            _refuse_truncated(data)
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:  # reads the header only
                width, height = image.size
            _check_pixels(width, height)
            with BUDGET.claim(width * height * PIXEL_BYTES):
                picture = _resized(_decode_with_pillow(data), size)
    except Exception as error:  # Pillow raises many types for a broken file
        reason = _reason(error, data)
        message = f"{path}: not a picture that can be read ({reason}); replace or remove it"
        raise DataError(message) from error
    return picture


def _resized(picture: Tensor, size: int | None) -> Tensor:
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


def _decode_jpeg(data: bytearray, size: int | None) -> Tensor | None:
    """Decode and resize a JPEG by torchvision, faster than Pillow; None if it cannot decode it.

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

    buffer = torch.frombuffer(data, dtype=torch.uint8)
    with BUDGET.claim(width * height * JPEG_BYTES):
        try:
            picture = decode_jpeg(buffer, mode=ImageReadMode.RGB, apply_exif_orientation=True)
        except RuntimeError:
            return None  # Pillow may decode it, or explain why not
        return _resized(picture, size)


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
    if width * height > pixel_limit():
        raise Image.DecompressionBombError


def _decode_with_pillow(data: bytearray) -> Tensor:
    image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode in ("I", "F"):
        raise ValueError(
            "its pixels are 32-bit numbers of unknown range; save it with 8 or 16 bits"
        )
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    width, height = image.size
    pixels = np.empty((height, width, 3), np.uint8)
    rows = max(1, STRIP // width)
    for top in range(0, height, rows):  # a whole copy would double the memory
        strip = image.crop((0, top, width, min(top + rows, height)))
        pixels[top : top + rows] = np.asarray(strip.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _reason(error: Exception, data: bytearray) -> str:
    """Explain in a few words why a picture cannot be decoded."""
    if isinstance(error, UnidentifiedImageError):
        if data[4:8] == b"ftyp":  # the container of HEIC and AVIF
            return "HEIC or AVIF, as phones write it: save it as JPEG"
        return "no picture format that is known"
    if isinstance(error, Image.DecompressionBombError):
        limit = pixel_limit() / 1e6
        return f"above {limit:.0f} megapixels" if limit >= 1 else f"above {limit:g} megapixels"
    text = " ".join(str(error).split())
    if "truncated" in text.lower():
        return "the file is cut short"
    return text[:150] or type(error).__name__
