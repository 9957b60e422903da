import io
import os
import random
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from spml.data.images.decode import (
    PIXEL_LIMIT,
    channels_first,
    channels_last,
    decode,
    decode_bytes,
    jpeg_size,
    read_file,
    resize,
)
from spml.errors import DataError
from tests.data.conftest import refused


def scene(width, height, seed=0):
    """A picture with gradients, edges and grain, like a photograph."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    waves = [np.sin(2 * np.pi * (a * x + b * y) + c) for a, b, c in rng.uniform(0.5, 9, (3, 3))]
    pixels = 127 + 70 * np.stack(waves, -1) + rng.normal(0, 20, (height, width, 3))
    pixels[height // 3 : height // 2, width // 4 : width // 2] = rng.uniform(0, 255, 3)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def as_pillow(path, size):
    """Decode as the loader of the benchmark protocol does."""
    with Image.open(path) as image:
        resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(resized).transpose(2, 0, 1)


SHAPES = [(500, 375), (333, 500), (448, 448), (64, 48), (1200, 900), (90, 700), (1, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("quality", [60, 95])
def test_pixels_match_the_protocol_within_one_grey_level(tmp_path, shape, quality):
    path = tmp_path / "a.jpg"
    scene(*shape, seed=quality).save(path, quality=quality)
    for size in (448, 64):
        ours, theirs = decode(path, size).numpy().astype(int), as_pillow(path, size).astype(int)
        assert ours.shape == theirs.shape == (3, size, size)
        assert abs(ours - theirs).max() <= 1


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
@pytest.mark.parametrize("size", [None, 32, 50, 448])
def test_pixels_are_channels_last_for_every_size_and_equal_planar_ones(tmp_path, name, size):
    scene(60, 50).save(tmp_path / name)
    picture = decode(tmp_path / name, size)
    assert channels_last(picture).is_contiguous()
    assert torch.equal(channels_first(channels_last(picture)), picture)
    if size is not None:
        in_planes = decode(tmp_path / name).contiguous()
        assert torch.equal(resize(in_planes, size), picture)


def transparent(image):
    image = image.convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


def animated(image, path):
    image.save(path, save_all=True, append_images=[Image.new("RGB", image.size)])


FORMATS = {
    "colour.jpg": lambda image, path: image.save(path),
    "progressive.jpg": lambda image, path: image.save(path, progressive=True),
    "grey.jpg": lambda image, path: image.convert("L").save(path),
    "cmyk.jpg": lambda image, path: image.convert("CMYK").save(path),
    "colour.png": lambda image, path: image.save(path),
    "grey.png": lambda image, path: image.convert("L").save(path),
    "rgba.png": lambda image, path: transparent(image).save(path),
    "grey_alpha.png": lambda image, path: transparent(image).convert("LA").save(path),
    "palette.png": lambda image, path: image.convert("P").save(path),
    "palette_transparent.png": lambda image, path: image.convert("P").save(path, transparency=7),
    "bilevel.png": lambda image, path: image.convert("1").save(path),
    "animated.gif": lambda image, path: animated(image, path),
    "lossy.webp": lambda image, path: image.save(path),
    "rgba.webp": lambda image, path: transparent(image).save(path, lossless=True),
    "animated.webp": lambda image, path: animated(image, path),
    "a.bmp": lambda image, path: image.save(path),
    "a.tif": lambda image, path: image.save(path),
    "cmyk.tiff": lambda image, path: image.convert("CMYK").save(path),
    "called_png.jpg": lambda image, path: image.save(path, format="PNG"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_pillows_rgb(tmp_path, name):
    FORMATS[name](scene(41, 30), tmp_path / name)
    picture = decode(tmp_path / name)
    with Image.open(tmp_path / name) as image:
        assert picture.dtype == torch.uint8
        assert (picture.numpy() == np.asarray(image.convert("RGB")).transpose(2, 0, 1)).all()


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_sixteen_bits_become_their_upper_eight(tmp_path, name):
    values = (np.arange(20 * 30).reshape(20, 30) * 109).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / name)
    assert (decode(tmp_path / name).numpy() == (values >> 8)).all()


def test_values_without_a_range_are_refused(tmp_path):
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "a.tif")
    with refused("32-bit numbers of unknown range; save it with 8 or 16 bits"):
        decode(tmp_path / "a.tif")


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_pictures_are_rotated_by_exif(tmp_path, name, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = scene(40, 24)
    image.save(tmp_path / name, exif=exif, **({"lossless": True} if name == "a.webp" else {}))
    with Image.open(tmp_path / name) as stored:
        flat = np.asarray(stored.convert("RGB")).transpose(2, 0, 1)
    turned = np.rot90(flat, {1: 0, 3: 2, 6: 3, 8: 1}[orientation], axes=(1, 2))
    assert (decode(tmp_path / name).numpy() == turned).all()


def encoded(kind):
    buffer = io.BytesIO()
    scene(60, 40).save(buffer, kind)
    return buffer.getvalue()


BROKEN = {
    "text": (b"this is no picture\n" * 20, "no picture format that is known"),
    "a phone's picture": (
        b"\0\0\0\x18ftypheic" + bytes(500),
        "HEIC or AVIF, as phones write it: save it as JPEG",
    ),
    "empty": (b"", "the file is empty"),
    "half a JPEG": (encoded("JPEG")[:700], "cut short"),
    "half a PNG": (encoded("PNG")[:700], "cut short"),
    "half a GIF": (encoded("GIF")[:700], "cut short|not a picture"),
    "half a WebP": (encoded("WEBP")[:300], "not a picture"),
    "a JPEG's first bytes": (encoded("JPEG")[:20], "not a picture"),
    "a JPEG's head and noise": (encoded("JPEG")[:200] + bytes(range(256)) * 9, "not a picture"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_picture_gives_one_plain_line(tmp_path, name):
    data, reason = BROKEN[name]
    path = tmp_path / "a.jpg"
    path.write_bytes(data)
    with refused(reason) as caught:
        decode(path, 32)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    assert not any(word in message for word in (".cpp", ".h:", "0x", "BytesIO", "Traceback"))


def small_in_header():
    """EXIF with an embedded thumbnail, as cameras write it: a complete JPEG with start and end."""
    exif = Image.Exif()
    exif[0x010E] = "a"
    return exif.tobytes() + encoded("JPEG")


@pytest.mark.parametrize(
    "how", [{}, {"progressive": True}, {"exif": small_in_header()}], ids=["", "scans", "header"]
)
def test_a_jpeg_that_ends_in_zeros_is_treated_as_truncated(tmp_path, how):
    path = tmp_path / "a.jpg"
    scene(60, 40).save(path, **how)
    whole = path.read_bytes()
    assert decode(path).shape == (3, 40, 60)
    path.write_bytes(whole + bytes(5000))  # any bytes may follow the end marker
    assert decode(path).shape == (3, 40, 60)
    half = whole.rindex(b"\xff\xda") + 200
    for zeros in (0, len(whole) - half, 100_000):  # a download into a preallocated file
        path.write_bytes(whole[:half] + bytes(zeros))
        with refused(r"a.jpg: not a picture .* \(the file is cut short\); replace"):
            decode(path)


def test_missing_files_and_folders_are_reported(tmp_path):
    with refused(r"a.jpg: cannot be read \(No such file or directory\); check the path"):
        decode(tmp_path / "a.jpg")
    with refused("check the path; if the items are rows of numbers.*--features"):
        decode(tmp_path / "plot 1")
    with refused("a folder, not a picture"):
        decode(tmp_path)
    os.mkfifo(tmp_path / "pipe.jpg")
    with refused("no ordinary file"):
        decode(tmp_path / "pipe.jpg")


def chunk(kind, data):
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


@pytest.mark.parametrize("side", [13_500, 60_000])
def test_a_bomb_is_refused_by_its_header(tmp_path, monkeypatch, side):
    # Programs that open large pictures set this.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert side**2 > PIXEL_LIMIT
    header = side.to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in chunks)
    (tmp_path / "bomb.png").write_bytes(png)
    jpeg = bytearray(encoded("JPEG"))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = side.to_bytes(2, "big") * 2
    (tmp_path / "bomb.jpg").write_bytes(jpeg)
    for name in ("bomb.png", "bomb.jpg"):
        with refused(r"bomb.*above 179 megapixels"):
            decode(tmp_path / name, 32)


def test_a_jpeg_that_claims_more_pixels_than_its_bytes_can_hold_is_refused(tmp_path):
    jpeg = bytearray(encoded("JPEG"))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = (13_000).to_bytes(2, "big") * 2
    (tmp_path / "a.jpg").write_bytes(jpeg)
    with refused("bytes cannot hold the 13000 x 13000 pixels it claims"):
        decode(tmp_path / "a.jpg", 32)
    for options in ({}, {"progressive": True, "optimize": True}, {"quality": 1, "optimize": True}):
        # The minimum size of a complete file.
        Image.new("L", (3000, 3000), 255).save(tmp_path / "flat.jpg", **options)
        assert decode(tmp_path / "flat.jpg", 4).min() == 255


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_damaged_files_give_a_picture_or_the_data_error(tmp_path, kind):
    whole, rng = encoded(kind), random.Random(0)
    for i in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 4, 40])):
            data[rng.randrange(min(len(data), 200 if i % 2 else len(data)))] = rng.randrange(256)
        path = tmp_path / "a"
        path.write_bytes(data[: rng.randrange(1, len(data) + 1)] if i % 3 == 0 else data)
        try:
            picture = decode(path, 16)
        except DataError:
            continue
        assert picture.shape == (3, 16, 16) and picture.dtype == torch.uint8


@pytest.mark.parametrize(
    "how", [{}, {"progressive": True}, {"exif": b"Exif\0\0" + bytes(9000)}, {"comment": b"a" * 300}]
)
def test_height_and_width_of_a_jpeg_are_read_from_its_header(how):
    file = io.BytesIO()
    scene(37, 21).save(file, "JPEG", **how)
    assert jpeg_size(bytearray(file.getvalue())) == (37, 21)


def test_an_unusual_header_is_left_to_pillow():
    file = io.BytesIO()
    scene(37, 21).save(file, "JPEG")
    data = bytearray(file.getvalue())
    frame = data.index(b"\xff\xc0")
    stray = data[:frame] + b"\xff\xd0" + data[frame:]
    cut = [data[:frame], data[: frame + 6]]
    for odd in (b"", b"\xff", *cut, b"GIF89a", data[:2] + bytes(40), stray):
        assert jpeg_size(bytearray(odd)) is None
    assert decode_bytes(stray, "a.jpg").shape == (3, 21, 37)


def test_a_file_with_another_length_than_its_status_is_read_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.jpg"
    path.write_bytes(bytes(range(200)))
    real = os.stat_result
    for message in (50, 900):
        about = list(path.stat())
        about[6] = message
        with monkeypatch.context() as patched:
            patched.setattr(type(path), "stat", lambda self, about=about: real(about))
            assert read_file(path) == bytes(range(200))
