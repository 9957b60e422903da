"""Answers of the endpoints, and of the tagger behind them."""

import json
import re
import urllib.request
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from spml.data.images.decode import decode
from spml.errors import UserError
from spml.model import load_model
from spml.use.predict.predict import predict
from spml.use.serve.tagger import Limits, RefusedError, Tagger
from tests.use.conftest import huge_png, write_model
from tests.use.serve.serving import LIMITS, ask, form, picture, served


def test_the_endpoint_gives_the_models_probabilities(site, small_model, tmp_path):
    (tmp_path / "photo.png").write_bytes(picture())
    model, info = load_model(small_model)
    expected = model(decode(tmp_path / "photo.png", 16)[None]).sigmoid()[0].tolist()
    shouted = {"Content_Type": "Multipart/Form-Data; boundary=x"}  # its case does not matter
    for body, headers in ((picture(), {}), form(picture()), (form(picture())[0], shouted)):
        status, answer = ask(f"{site}/api/predict", body, **headers)
        assert (status, answer["classes"]) == (200, info.classes)
        assert answer["thresholds"] == [0.5] * 3
        assert answer["probabilities"] == pytest.approx(expected, abs=1e-5)
        tags = {name for name, p in zip(info.classes, expected, strict=True) if p >= 0.5}
        assert set(answer["tags"]) == tags


def test_thresholds_and_calibration_of_the_model_count(tmp_path):
    lines = [[[-1.0, 1.0], [-9.0, -8.0]], *[[[-1.0, 1.0], [up, up + 1]] for up in (8.0, 9.0)]]
    best = tmp_path / "run" / "best"
    write_model(best, ["a", "b", "c"], thresholds=[0.0, 1.0, 0.5], calibration=lines)
    tagger = Tagger(best.parent, LIMITS)
    answer = tagger.answer(picture())
    assert answer["probabilities"][0] < 0.01 and answer["probabilities"][1] > 0.99
    assert answer["tags"] == ["c", "a"]  # the most probable first
    assert tagger.about()["calibrated"] and tagger.name == "run"


def test_the_model_is_described_without_paths(site, small_model):
    status, answer = ask(f"{site}/api/model")
    assert (status, answer["classes"][0], answer["calibrated"]) == (200, "red", False)
    assert answer["limits"] == {"bytes": LIMITS.bytes, "pixels": LIMITS.pixels}
    assert str(small_model.parent) not in json.dumps(answer)
    head = urllib.request.Request(f"{site}/api/model", method="HEAD")
    with urllib.request.urlopen(head, timeout=60) as response:  # used to check that a server is up
        assert response.status == 200 and not response.read()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_pictures_of_every_kind_down_to_one_pixel_are_accepted(site, kind):
    for size in ((1, 1), (999, 3)):
        assert ask(f"{site}/api/predict", picture(size, kind))[0] == 200


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        pytest.param(b"only text", 415, "not a picture", id="text"),
        pytest.param(picture()[:60], 415, "cut short|not a picture", id="cut"),
        pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "not a", id="eps"),
        pytest.param(b"\0" * 310_000, 413, "above 0.3 MB", id="long"),
        pytest.param(b"\0" * 400_000, 413, "above the limit", id="longer"),
        pytest.param(picture((1001, 1000)), 413, "above 1 megapixels", id="large"),
        pytest.param(huge_png(20000, 20000), 413, "above 1 megapixels", id="huge"),
        pytest.param(huge_png(2**31 - 1, 2**31 - 1), 413, "above 1 megapixels", id="vast"),
        pytest.param(b"", 400, "no bytes|cannot be read", id="empty"),
    ],
)
def test_invalid_and_too_large_pictures_are_refused_in_one_line(site, data, status, words):
    for body, headers in ((data, {}), form(data, "dir/..\\\\c.jpg")):
        code, answer = ask(f"{site}/api/predict", body, **headers)
        assert (code, list(answer)) == (status, ["error"]) and re.search(words, answer["error"])
        assert "\n" not in answer["error"] and "dir" not in answer["error"]


def test_a_picture_at_the_limits_is_accepted_and_a_larger_one_refused(small_model):
    exact = Limits(bytes=len(picture()), pixels=20 * 16)
    assert Tagger(small_model, exact).answer(picture())["classes"]
    with pytest.raises(RefusedError, match=r"picture: above .* MB"):
        Tagger(small_model, exact).answer(picture() + b"\0")
    with pytest.raises(RefusedError, match=r"above 0\.000319 megapixels"):
        Tagger(small_model, Limits(pixels=20 * 16 - 1)).answer(picture())


def test_names_of_clients_are_one_short_line(small_model):
    tagger = Tagger(small_model, LIMITS)
    names = {"/x/y.png": "y.png", "C:\\a\\b.png": "b.png", "a\n b\x1b.png": "a b .png"}
    for name, reported in {**names, "x" * 99: "x" * 80, "a/": "picture"}.items():
        with pytest.raises(RefusedError, match=f"^{re.escape(reported)}: no bytes came"):
            tagger.answer(b"", name)


def test_forms_without_a_file_or_cut_off_are_refused(site):
    body, headers = form(picture())
    without = body.replace(b'; filename="photo.png"', b"")
    for wrong in (without, b"--y\r\nnothing"):
        status, answer = ask(f"{site}/api/predict", wrong, **headers)
        assert status == 400 and "form" in answer["error"]


def test_a_class_map_is_drawn_over_the_picture(site):
    status, image = ask(f"{site}/api/map?class=%3Cb%3Eblue", picture((200, 100)))
    with Image.open(BytesIO(image)) as drawn:
        assert status == 200 and drawn.format == "PNG" and drawn.width == 480
    assert ask(f"{site}/api/map?class=green", picture((200, 100)))[1] != image
    for query in ("", "?class=", "?class=none"):
        status, answer = ask(f"{site}/api/map{query}", picture())
        assert status == 400 and "?class=NAME" in answer["error"]
    assert ask(f"{site}/api/map?class=red", b"text")[0] == 415


def test_feature_values_come_as_json(make_model):
    run = make_model(features=4)
    x = np.array([1, 2.5, -3, 0], np.float32)
    np.savez(run.parent / "x.npz", x=x[None])
    predict(run, [run.parent / "x.npz"], run.parent / "p.csv")
    expected = (run.parent / "p.csv").read_text().splitlines()[1].split(",")[2:]
    with served(run) as site:
        status, answer = ask(f"{site}/api/predict", json.dumps({"features": x.tolist()}).encode())
        assert status == 200 and ask(f"{site}/api/model")[1]["features"] == 4
        assert answer["probabilities"] == pytest.approx([float(p) for p in expected], abs=2e-6)
        assert ask(f"{site}/api/map?class=red", b"{}") == (
            404,
            {"error": "this model has no class maps"},
        )
        assert "4 feature values" in ask(f"{site}/")[1]


@pytest.mark.parametrize(
    "sent",
    [
        *("", "text", "[1, 2, 3, 4]", "{}", '{"features": 1}', '{"features": [1, 2, 3]}'),
        *('{"features": [1, 2, 3, NaN]}', '{"features": [1, 2, 3, null]}', '{"features": [{}]}'),
        *('{"features": [1, 2, 3, 1e300]}', '{"features": [[1], [2, 3]]}'),
        pytest.param("[" * 50_000, id="deep"),
        pytest.param('{"features": [1, 2, 3, 1' + 400 * "0" + "]}", id="large"),
    ],
)
def test_invalid_feature_values_are_refused_in_one_line(make_model, sent):
    with pytest.raises(RefusedError, match=r"with 4 finite numbers$") as refused:
        Tagger(make_model(features=4), LIMITS).answer(sent.encode())
    assert refused.value.status == 400


def test_damaged_weights_are_reported_at_the_start_and_later(make_model):
    run = make_model()
    tagger = Tagger(run, LIMITS)
    tagger.model.head.bias.fill_(np.nan)
    with pytest.raises(UserError, match="not numbers"):
        tagger.answer(picture())
    tensors = load_file(run / "model.safetensors")
    save_file({**tensors, "head.bias": tensors["head.bias"] * np.nan}, run / "model.safetensors")
    with pytest.raises(UserError, match="not numbers"):
        Tagger(run, LIMITS)
