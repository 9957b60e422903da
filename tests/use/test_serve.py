import http.client
import json
import urllib.request

import numpy as np
import pytest
import torch

from spml.cli import main
from spml.data.images.decode import decode
from spml.errors import UserError
from spml.model import Classifier, ModelInfo, load_model, save_model

pytest.importorskip("gradio")

from spml.use.serve.serve import check_gradio, listening
from spml.use.serve.tagger import RefusedError, Tagger
from tests.use.conftest import write_model
from tests.use.serving import LIMITS, ask, form, picture, served


@pytest.fixture(scope="module")
def site(small_model):
    with served(small_model) as address:
        yield address


def test_the_endpoint_gives_the_models_probabilities(site, small_model, tmp_path):
    (tmp_path / "photo.png").write_bytes(picture())
    model, info = load_model(small_model)
    expected = model(decode(tmp_path / "photo.png", 16)[None]).sigmoid()[0].tolist()
    shouted = {"Content_Type": "Multipart/Form-Data; boundary=x"}  # its case does not matter
    for body, headers in ((picture(), {}), form(picture()), (form(picture())[0], shouted)):
        status, answer = ask(f"{site}/api/predict", body, **headers)
        assert (
            status == 200
            and answer["classes"] == info.classes
            and answer["thresholds"] == [0.5] * 3
        )
        assert answer["probabilities"] == pytest.approx(expected, abs=1e-5)
        assert set(answer["tags"]) == {
            name for name, p in zip(info.classes, expected, strict=True) if p >= 0.5
        }


def test_thresholds_and_calibration_of_the_model_count(tmp_path):
    lines = [[[-1.0, 1.0], [-9.0, -8.0]], [[-1.0, 1.0], [8.0, 9.0]]]
    run = write_model(
        tmp_path / "run" / "best", ["a", "b"], thresholds=[0.0, 1.0], calibration=lines
    )
    tagger = Tagger(run.parent, LIMITS)
    seen = tagger.see(picture())
    assert seen.probabilities[0] < 0.01 and seen.probabilities[1] > 0.99
    assert (
        tagger.answer(seen)["tags"] == ["a"]
        and tagger.about()["calibrated"]
        and tagger.name == "run"
    )
    assert tagger.tags(seen, [0.0, 0.1]) == ["b", "a"]


def test_the_model_is_described_without_paths(site, small_model):
    status, answer = ask(f"{site}/api/model")
    assert (
        status == 200 and answer["classes"][0] == "red" and answer["limits"]["pixels"] == 1_000_000
    )
    assert str(small_model.parent) not in json.dumps(answer)
    head = urllib.request.Request(f"{site}/api/model", method="HEAD")
    with urllib.request.urlopen(head, timeout=60) as response:  # used to check that a server is up
        assert response.status == 200 and not response.read()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_pictures_of_every_kind_down_to_one_pixel_are_accepted(site, kind):
    for size in ((1, 1), (999, 3)):
        assert ask(f"{site}/api/predict", picture(size, kind))[0] == 200


def bomb(width, height):
    """A PNG of a few bytes whose header claims this many pixels."""
    data = bytearray(picture((1, 1)))
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    import zlib

    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"only text", 415, "not a picture"),
        (picture()[:60], 415, "cut short|not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "not a picture"),
        (b"\0" * 310_000, 413, "above 0.3 MB"),
        (b"\0" * 400_000, 413, "above the limit"),
        (picture((1001, 1000)), 413, "above 1 megapixels"),
        (bomb(20000, 20000), 413, "above 1 megapixels"),
        (bomb(2**31 - 1, 2**31 - 1), 413, "above 1 megapixels"),
        (b"", 400, "no bytes"),
    ],
    ids=["text", "cut", "eps", "long", "longer", "large", "huge", "vast", "empty"],
)
def test_invalid_and_too_large_pictures_are_refused_in_one_line(site, data, status, words):
    import re

    for body, headers in ((data, {}), form(data, "dir/..\\\\c.jpg")):
        if status == 400 and headers:
            continue
        code, answer = ask(f"{site}/api/predict", body, **headers)
        assert (code, list(answer)) == (status, ["error"]) and re.search(words, answer["error"])
        assert "\n" not in answer["error"]


def test_forms_without_a_file_or_cut_off_are_refused(site):
    body, headers = form(picture())
    assert (
        ask(f"{site}/api/predict", body.replace(b'; filename="photo.png"', b""), **headers)[0]
        == 400
    )
    assert ask(f"{site}/api/predict", b"--y\r\nnothing", **headers)[0] == 400
    assert ask(f"{site}/api/predict")[0] == 405


def test_a_body_without_a_length_is_cut_off_at_the_limit(site):
    connection = http.client.HTTPConnection(site.removeprefix("http://"), timeout=60)
    parts = (b"\0" * 50_000 for _ in range(20))
    try:
        connection.request(
            "POST", "/api/predict", parts, {"Transfer-Encoding": "chunked"}, encode_chunked=True
        )
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before all was sent
    finally:
        connection.close()


def test_the_page_loads_nothing_from_other_hosts(site):
    status, text = ask(f"{site}/")
    assert status == 200 and "gradio_config" in text
    assert 'analytics_enabled":true' not in text.replace(" ", "") and "fonts.googleapis" not in text


SECRETS = (
    *(
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=../../../etc/passwd",
        "/file=/etc/passwd",
        "/file/etc/passwd",
    ),
    *(
        "/gradio_api/file=%2Fetc%2Fpasswd",
        "/gradio_api/proxy=http://127.0.0.1/",
        "/static/../../../../etc/passwd",
    ),
    *(
        "/assets/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/assets/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/static/%5c..%5cetc",
    ),
    *(
        "/gradio_api/runs",
        "/gradio_api/info",
        "/gradio_api/openapi.json",
        "/gradio_api/upload",
        "/docs",
        "/openapi.json",
    ),
    *(
        "/gradio_api/vibe-code",
        "/gradio_api/stream/a/b/1/playlist-file",
        "/gradio_api/custom_component/1/client/x/y",
    ),
)


@pytest.mark.parametrize("path", SECRETS)
def test_no_file_of_the_host_and_no_other_route_is_served(site, small_model, path):
    for way in (path, path.replace("/etc/passwd", str(small_model / "model.json"))):
        connection = http.client.HTTPConnection(site.removeprefix("http://"), timeout=60)
        connection.putrequest("GET", way, skip_host=False)  # raw path: urllib would normalise it
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 404, way
        assert b"root:" not in answer.read()
        connection.close()


@pytest.mark.parametrize("path", ["/etc/passwd", "http://127.0.0.1:1/x", "model.json"])
def test_an_event_that_names_a_file_or_an_address_is_refused(site, path):
    file = {"path": path, "url": path, "meta": {"_type": "gradio.FileData"}}
    for data in ([file], [[file]], [None, {"a": file}], "no list"):
        event = {"data": data, "fn_index": 0, "session_hash": "s"}
        status, answer = ask(
            f"{site}/gradio_api/queue/join",
            json.dumps(event).encode(),
            Content_Type="application/json",
        )
        assert status == 400 and "not as files" in answer["error"]
    assert ask(f"{site}/gradio_api/queue/join", b"{", Content_Type="application/json")[0] == 400
    assert ask(f"{site}/gradio_api/upload", b"x")[0] == 404
    assert ask(f"{site}/config", b"x")[0] == 405


def test_foreign_host_names_are_refused_only_on_loopback(site, small_model):
    assert ask(f"{site}/api/model", Host="evil.example:80")[0] == 403
    assert ask(f"{site}/api/model", Host="localhost:1")[0] == 200
    assert ask(f"{site}/api/model", Host="[::1]:1")[0] == 200
    with served(small_model, hosts=None) as open_to_all:
        assert ask(f"{open_to_all}/api/model", Host="my-machine.local")[0] == 200


def test_damaged_weights_and_models_of_features_are_reported(tmp_path, monkeypatch):
    features = {"kind": "features", "size": None, "upright": True, "features": 4}
    save_model(
        tmp_path / "f",
        Classifier.build("linear", 2, features=4),
        ModelInfo(["a", "b"], "linear", features, [0.5] * 2),
    )
    with pytest.raises(UserError, match="feature vectors; serve shows pictures"):
        Tagger(tmp_path / "f", LIMITS)
    run = write_model(tmp_path / "run")
    monkeypatch.setattr(
        "spml.use.serve.tagger.class_maps", lambda model, x: (torch.full((1, 3), torch.nan), None)
    )
    with pytest.raises(UserError, match="not numbers"):  # reported at the start
        Tagger(run, LIMITS)
    monkeypatch.undo()
    tagger = Tagger(run, LIMITS)
    tagger.model.head.bias.fill_(np.nan)
    with pytest.raises(UserError, match="not numbers"):
        tagger.see(picture())
    with pytest.raises(RefusedError):
        tagger.see(b"text", "x.jpg")


def test_the_command_reports_errors_in_one_line(small_model, tmp_path, capsys, monkeypatch):
    assert main(["serve", str(tmp_path / "nothing")]) == 2
    assert "no model here" in capsys.readouterr().err
    assert main(["serve", str(small_model), "--max-pixels", "0"]) == 2
    assert "--max-pixels must be above 0" in capsys.readouterr().err
    assert main(["serve", str(small_model), "--max-pixels", "3e8"]) == 2
    assert "pictures above 178,956,970 pixels are not read" in capsys.readouterr().err
    with listening("127.0.0.1", 0) as listener:
        listener.listen()
        assert main(["serve", str(small_model), "--port", str(listener.getsockname()[1])]) == 2
    assert "cannot listen there" in capsys.readouterr().err
    assert main(["serve", str(small_model), "--port", "99999"]) == 2  # the system would use 34463
    assert "must be from 0 to 65535" in capsys.readouterr().err
    assert main(["serve", str(small_model), "--host", "no such name"]) == 2
    monkeypatch.setattr("spml.use.serve.serve.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install -e '.\[serve\]'"):
        check_gradio()
