import base64
import http.client
import io
import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

from spml.cli import main
from spml.data.pictures import decode
from spml.errors import UserError
from spml.model import Classifier, ModelInfo, load_model, save_model
from tests.use import browser

pytest.importorskip("gradio")

from spml.use.serve import application, check_gradio, listening, own_folder
from spml.use.serve_gate import LOOPBACK
from spml.use.serve_model import Limits, RefusedError, Tagger

PICTURES = {"kind": "pictures", "size": 16, "upright": True, "features": None}
LIMITS = Limits(bytes=300_000, pixels=1_000_000)


def make_model(folder, classes=("red", "green", "<b>blue"), **values):
    torch.manual_seed(2)
    info = ModelInfo(list(classes), "tiny", PICTURES, [0.5] * len(classes))
    model = Classifier.build("tiny", len(classes))
    save_model(folder, model, replace(info, **values))
    return folder


def picture(size=(20, 16), kind="PNG", colour=(200, 30, 30)):
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, kind)
    return buffer.getvalue()


@contextmanager
def served(run, hosts=LOOPBACK, limits=LIMITS):
    """Where the page of a run is, while it is served."""
    import uvicorn

    with listening("127.0.0.1", 0) as at, own_folder():
        server = uvicorn.Server(uvicorn.Config(application(Tagger(run, limits), hosts), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{at.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("serve") / "model")


@pytest.fixture(scope="module")
def site(run):
    with served(run) as address:
        yield address


def ask(address, data=None, **headers):
    """Status and JSON, or text, of an answer."""
    request = urllib.request.Request(address, data, {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body.decode(errors="replace")


def form(data, name="photo.png", field="file"):
    head = f'--x\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'.encode()
    return head + data + b"\r\n--x--\r\n", {"Content_Type": "multipart/form-data; boundary=x"}


def test_the_endpoint_gives_the_models_probabilities(site, run, tmp_path):
    (tmp_path / "photo.png").write_bytes(picture())
    model, info = load_model(run)
    expected = model(decode(tmp_path / "photo.png", 16)[None]).sigmoid()[0].tolist()
    shouted = {"Content_Type": "Multipart/Form-Data; boundary=x"}  # its case does not matter
    for body, headers in ((picture(), {}), form(picture()), (form(picture())[0], shouted)):
        status, answer = ask(f"{site}/api/predict", body, **headers)
        assert status == 200 and answer["classes"] == info.classes and answer["thresholds"] == [0.5] * 3
        assert answer["probabilities"] == pytest.approx(expected, abs=1e-5)
        assert set(answer["tags"]) == {name for name, p in zip(info.classes, expected, strict=True) if p >= 0.5}


def test_thresholds_and_calibration_of_the_model_count(tmp_path):
    lines = [[[-1.0, 1.0], [-9.0, -8.0]], [[-1.0, 1.0], [8.0, 9.0]]]
    run = make_model(tmp_path / "run" / "best", ["a", "b"], thresholds=[0.0, 1.0], calibration=lines)
    tagger = Tagger(run.parent, LIMITS)
    seen = tagger.see(picture())
    assert seen.probabilities[0] < 0.01 and seen.probabilities[1] > 0.99
    assert tagger.answer(seen)["tags"] == ["a"] and tagger.about()["calibrated"] and tagger.name == "run"
    assert tagger.tags([0.2, 0.9], [0.1, 0.1]) == ["b", "a"]


def test_the_model_is_described_without_paths(site, run):
    status, answer = ask(f"{site}/api/model")
    assert status == 200 and answer["classes"][0] == "red" and answer["limits"]["pixels"] == 1_000_000
    assert str(run.parent) not in json.dumps(answer)
    head = urllib.request.Request(f"{site}/api/model", method="HEAD")
    with urllib.request.urlopen(head, timeout=60) as found:  # by which others see that a server is up
        assert found.status == 200 and not found.read()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_pictures_of_every_kind_down_to_one_pixel_are_taken(site, kind):
    for size in ((1, 1), (999, 3)):
        assert ask(f"{site}/api/predict", picture(size, kind))[0] == 200


def bomb(width, height):
    """A PNG of a few bytes that says it has so many pixels."""
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
def test_what_is_no_picture_or_too_large_is_refused_in_one_line(site, data, status, words):
    import re

    for body, headers in ((data, {}), form(data, "dir/..\\\\c.jpg")):
        if status == 400 and headers:
            continue
        found, answer = ask(f"{site}/api/predict", body, **headers)
        assert (found, list(answer)) == (status, ["error"]) and re.search(words, answer["error"])
        assert "\n" not in answer["error"]


def test_forms_without_a_file_or_cut_off_are_refused(site):
    body, headers = form(picture())
    assert ask(f"{site}/api/predict", body.replace(b'; filename="photo.png"', b""), **headers)[0] == 400
    assert ask(f"{site}/api/predict", b"--y\r\nnothing", **headers)[0] == 400
    assert ask(f"{site}/api/predict")[0] == 405


def test_a_body_of_untold_length_is_cut_off_at_the_limit(site):
    connection = http.client.HTTPConnection(site.removeprefix("http://"), timeout=60)
    parts = (b"\0" * 50_000 for _ in range(20))
    try:
        connection.request("POST", "/api/predict", parts, {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # it was refused while we were still sending
    finally:
        connection.close()


def test_the_page_is_there_and_asks_for_nothing_elsewhere(site):
    status, text = ask(f"{site}/")
    assert status == 200 and "gradio_config" in text
    assert 'analytics_enabled":true' not in text.replace(" ", "") and "fonts.googleapis" not in text


SECRETS = (
    *("/gradio_api/file=/etc/passwd", "/gradio_api/file=../../../etc/passwd", "/file=/etc/passwd", "/file/etc/passwd"),
    *("/gradio_api/file=%2Fetc%2Fpasswd", "/gradio_api/proxy=http://127.0.0.1/", "/static/../../../../etc/passwd"),
    *("/assets/..%2f..%2f..%2f..%2fetc%2fpasswd", "/assets/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/static/%5c..%5cetc"),
    *(
        "/gradio_api/runs",
        "/gradio_api/info",
        "/gradio_api/openapi.json",
        "/gradio_api/upload",
        "/docs",
        "/openapi.json",
    ),
    *("/gradio_api/vibe-code", "/gradio_api/stream/a/b/1/playlist-file", "/gradio_api/custom_component/1/client/x/y"),
)


@pytest.mark.parametrize("path", SECRETS)
def test_no_file_of_the_host_and_no_other_way_in_is_served(site, run, path):
    for way in (path, path.replace("/etc/passwd", str(run / "model.json"))):
        connection = http.client.HTTPConnection(site.removeprefix("http://"), timeout=60)
        connection.putrequest("GET", way, skip_host=False)  # as it stands: urllib would tidy the path
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
            f"{site}/gradio_api/queue/join", json.dumps(event).encode(), Content_Type="application/json"
        )
        assert status == 400 and "not as files" in answer["error"]
    assert ask(f"{site}/gradio_api/queue/join", b"{", Content_Type="application/json")[0] == 400
    assert ask(f"{site}/gradio_api/upload", b"x")[0] == 404
    assert ask(f"{site}/config", b"x")[0] == 405


def test_a_name_that_is_not_this_machines_is_refused_on_loopback_alone(site, run):
    assert ask(f"{site}/api/model", Host="evil.example:80")[0] == 403
    assert ask(f"{site}/api/model", Host="localhost:1")[0] == 200
    assert ask(f"{site}/api/model", Host="[::1]:1")[0] == 200
    with served(run, hosts=None) as open_to_all:
        assert ask(f"{open_to_all}/api/model", Host="my-machine.local")[0] == 200


def page_of(run):
    """The first tab's events, as gradio would call them."""
    import gradio

    from spml.use.serve_page import _OnePicture

    with gradio.Blocks():
        return _OnePicture(Tagger(run, LIMITS))


class Event:
    def __init__(self, **data):
        self._data = data


def test_events_of_the_page_stand_whatever_is_sent(run):
    tab = page_of(run)
    good = base64.b64encode(picture()).decode()
    seen, bars, shown, first = tab.see([0.5] * 3, 0.0, Event(name="a.png", data=good))
    assert "&lt;b&gt;blue" in bars and "<b>blue" not in bars.replace("<b>&", "") and first in tab.classes
    assert "data:image/png" in shown
    for data, words in (
        (None, "above 0.3 MB"),
        ("!!", "base64|padding|Only"),
        ("", "no bytes"),
        ("aGk=", "not a picture"),
    ):
        import re

        nothing, problem, *_ = tab.see([0.5] * 3, 0.0, Event(name="<i>.png", data=data))
        assert nothing is None and re.search(words, problem) and "<i>" not in problem
    assert "No picture yet" in tab.bars(None, [0.5] * 3, 0) and tab.heat(None, "red") == ""
    assert tab.heat(seen, "no such class") == ""
    assert tab.pick(seen, Event(column=1))[0] == "green"
    for column in (-1, 3, "x", None):
        assert tab.pick(seen, Event(column=column))[0] not in tab.classes
    everything, nothing = tab.bars(seen, [0.5] * 3, -1), tab.bars(seen, [1.0] * 3, 1)
    assert "3 of 3 classes" in everything and "0 of 3 classes" in nothing
    cuts, moved = tab.move(seen, [1.0] * 3, 0, "green", 0.0)
    assert cuts == [1.0, 0.0, 1.0] and "1 of 3 classes" in moved


def test_many_classes_share_a_slider(tmp_path):
    run = make_model(tmp_path / "run", [f"class {i}" for i in range(40)])
    tab = page_of(run)
    assert tab.cut_of([0.1] * 39 + [0.7123456], "class 39") == 0.712
    with served(run) as site:
        assert ask(f"{site}/config")[1]["components"] is not None


def test_the_batch_table_escapes_what_clients_send(run):
    from spml.use.serve_page import _table

    rows = [("<i>", [0.9, 0.2, 1.0], ["<b>blue", "red"], None), ("bad", None, [], "<u>"), ("none", [0, 0, 0], [], None)]
    text = _table(Tagger(run, LIMITS), rows)
    assert "&lt;i&gt;" in text and "<i>" not in text and "<u>" not in text and "no class reaches" in text
    data = base64.b64decode(text.partition("base64,")[2].partition('"')[0]).decode()
    assert data.splitlines()[1] == "<i>,red|<b>blue,0.900000,0.200000,1.000000" and len(data.splitlines()) == 3


def test_the_batch_table_is_the_file_of_predict_where_rounded_probabilities_would_not_reach_thresholds(tmp_path):
    from spml.use.predict import predict
    from spml.use.serve_page import _table

    low = [[[0.0, 1.0], [-16.0, -15.0]]] * 3
    run = make_model(tmp_path / "run", ["image", "class", "tags"], thresholds=[0.1, 1e-8, 1e-8], calibration=low)
    (tmp_path / "a.png").write_bytes(picture())
    predict(run, [tmp_path / "a.png"], tmp_path / "tags.csv")
    tagger = Tagger(run, LIMITS)
    answer = tagger.answer(tagger.see(picture()))
    text = _table(tagger, [(str(tmp_path / "a.png"), answer["probabilities"], answer["tags"], None)])
    data = base64.b64decode(text.partition("base64,")[2].partition('"')[0])
    assert data == (tmp_path / "tags.csv").read_bytes()
    assert b"class:image" in data and b"a.png,class|tags,0.000000" in data


def test_damaged_weights_and_models_of_features_are_told(tmp_path, monkeypatch):
    features = {"kind": "features", "size": None, "upright": True, "features": 4}
    save_model(
        tmp_path / "f", Classifier.build("linear", 2, features=4), ModelInfo(["a", "b"], "linear", features, [0.5] * 2)
    )
    with pytest.raises(UserError, match="feature vectors; serve shows pictures"):
        Tagger(tmp_path / "f", LIMITS)
    run = make_model(tmp_path / "run")
    monkeypatch.setattr("spml.use.serve_model.class_maps", lambda model, x: (torch.full((1, 3), torch.nan), None))
    with pytest.raises(UserError, match="not numbers"):  # told at the start
        Tagger(run, LIMITS)
    monkeypatch.undo()
    tagger = Tagger(run, LIMITS)
    tagger.model.head.bias.fill_(np.nan)
    with pytest.raises(UserError, match="not numbers"):
        tagger.see(picture())
    with pytest.raises(RefusedError):
        tagger.see(b"text", "x.jpg")


def test_the_command_says_in_one_line_what_is_wrong(run, tmp_path, capsys, monkeypatch):
    assert main(["serve", str(tmp_path / "nothing")]) == 2
    assert "no model here" in capsys.readouterr().err
    assert main(["serve", str(run), "--max-pixels", "0"]) == 2
    assert "--max-pixels must be above 0" in capsys.readouterr().err
    assert main(["serve", str(run), "--max-pixels", "3e8"]) == 2
    assert "no picture above 178,956,970 pixels is read" in capsys.readouterr().err
    with listening("127.0.0.1", 0) as taken:
        taken.listen()
        assert main(["serve", str(run), "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen there" in capsys.readouterr().err
    assert main(["serve", str(run), "--port", "99999"]) == 2  # the system would take 34463
    assert "must be from 0 to 65535" in capsys.readouterr().err
    assert main(["serve", str(run), "--host", "no such name"]) == 2
    monkeypatch.setattr("spml.use.serve.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'spml\[serve\]'"):
        check_gradio()


@pytest.mark.slow
@pytest.mark.skipif(browser.found() is None, reason="no Chromium on this machine")
def test_a_person_sees_classes_moves_a_threshold_and_looks_at_a_map(finished, scenes, tmp_path):
    x = np.moveaxis(scenes.test.x[0], 0, 2)
    Image.fromarray(x).resize((240, 240), Image.Resampling.NEAREST).save(tmp_path / "scene.png")
    Image.fromarray(load_sample_image("china.jpg")).save(tmp_path / "photo.jpg")
    (tmp_path / "text.jpg").write_text("no picture")
    folder = tmp_path / "browser"
    with served(finished, limits=Limits()) as site, browser.Browser(browser.found(), folder) as page:
        page.go(site)
        page.until("document.querySelector('.spml-drop') != null")
        page.value(
            "document.querySelector('.spml-drop input').onclick = e => { e.preventDefault(); e.target.asked = 1 }"
        )
        page.value("document.querySelector('.spml-drop').focus()")
        page.press(" ")
        page.until("document.querySelector('.spml-drop input').asked")  # as a click would
        page.choose(".spml-drop input", tmp_path / "photo.jpg")
        page.until("document.querySelector('#spml-heat')?.naturalWidth > 100")
        before = page.value("document.querySelector('#spml-heat').src")
        assert page.value("document.querySelectorAll('.spml-row').length") == 10
        count = "document.querySelector('#spml-count').textContent"
        for shift, words in ((-1, "10 of 10"), (1, "0 of 10")):
            page.value(
                "(() => { const slider = document.querySelector('#spml-shift input[type=range]');"
                f"slider.value = {shift}; slider.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
            )
            page.until(f"{count}.startsWith('{words}')")
        last = page.value("[...document.querySelectorAll('.spml-row')].at(-1).dataset.class")
        page.value(f"document.querySelector('[data-class=\"{last}\"]').click()")
        name = list(scenes.classes)[int(last)]
        page.until(f"document.querySelector('#spml-heat').alt == 'map of {name}'")
        assert page.value("document.querySelector('#spml-heat').src") != before
        page.value(
            "[...document.querySelectorAll('button[role=tab]')].find(b => b.textContent.includes('Many')).click()"
        )
        page.until("document.querySelector('.spml-drop input[multiple]') != null")
        page.choose(".spml-drop input[multiple]", tmp_path / "scene.png", tmp_path / "text.jpg")
        page.until("document.querySelectorAll('.spml-table tr').length == 3")
        assert "text.jpg: not a picture" in page.value("document.querySelector('.spml-table').innerText")
        assert {
            url.partition("?")[0] for url in page.requests if not url.startswith((site, "data:", "about:"))
        } == set()
