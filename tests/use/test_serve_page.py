"""The served page: results of its events, and its view in a browser."""

import base64

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from tests.use import browser

pytest.importorskip("gradio")

from spml.use.serve.tagger import Limits, Tagger
from tests.use.conftest import write_model
from tests.use.serving import LIMITS, ask, picture, served


def page_of(run):
    """The first tab's events, as gradio would call them."""
    import gradio

    from spml.use.serve.page import _OnePicture

    with gradio.Blocks():
        return _OnePicture(Tagger(run, LIMITS))


class Event:
    def __init__(self, **data):
        self._data = data


def test_events_of_the_page_survive_any_input(small_model):
    tab = page_of(small_model)
    good = base64.b64encode(picture()).decode()
    seen, bars, shown, first = tab.see([0.5] * 3, 0.0, Event(name="a.png", data=good))
    assert (
        "&lt;b&gt;blue" in bars
        and "<b>blue" not in bars.replace("<b>&", "")
        and first in tab.classes
    )
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
    run = write_model(tmp_path / "run", [f"class {i}" for i in range(40)])
    tab = page_of(run)
    assert tab.cut_of([0.1] * 39 + [0.7123456], "class 39") == 0.712
    with served(run) as site:
        assert ask(f"{site}/config")[1]["components"] is not None


def test_the_batch_table_escapes_what_clients_send(small_model):
    from spml.use.serve.page import _table

    rows = [
        ("<i>", [0.9, 0.2, 1.0], ["<b>blue", "red"], None),
        ("bad", None, [], "<u>"),
        ("none", [0, 0, 0], [], None),
    ]
    text = _table(Tagger(small_model, LIMITS), rows)
    assert (
        "&lt;i&gt;" in text
        and "<i>" not in text
        and "<u>" not in text
        and "no class reaches" in text
    )
    data = base64.b64decode(text.partition("base64,")[2].partition('"')[0]).decode()
    assert (
        data.splitlines()[1] == "<i>,red|<b>blue,0.900000,0.200000,1.000000"
        and len(data.splitlines()) == 3
    )


def test_the_batch_table_agrees_with_predict_despite_rounded_probabilities(
    tmp_path,
):
    from spml.use.predict.predict import predict
    from spml.use.serve.page import _table

    low = [[[0.0, 1.0], [-16.0, -15.0]]] * 3
    run = write_model(
        tmp_path / "run", ["image", "class", "tags"], thresholds=[0.1, 1e-8, 1e-8], calibration=low
    )
    (tmp_path / "a.png").write_bytes(picture())
    predict(run, [tmp_path / "a.png"], tmp_path / "tags.csv")
    tagger = Tagger(run, LIMITS)
    answer = tagger.answer(tagger.see(picture()))
    text = _table(
        tagger, [(str(tmp_path / "a.png"), answer["probabilities"], answer["tags"], None)]
    )
    data = base64.b64decode(text.partition("base64,")[2].partition('"')[0])
    assert data == (tmp_path / "tags.csv").read_bytes()
    assert b"class:image" in data and b"a.png,class|tags,0.000000" in data


@pytest.mark.slow
@pytest.mark.skipif(browser.executable() is None, reason="no Chromium on this machine")
def test_a_user_sees_classes_moves_a_threshold_and_opens_a_map(finished, scenes, tmp_path):
    x = np.moveaxis(scenes.test.x[0], 0, 2)
    Image.fromarray(x).resize((240, 240), Image.Resampling.NEAREST).save(tmp_path / "scene.png")
    Image.fromarray(load_sample_image("china.jpg")).save(tmp_path / "photo.jpg")
    (tmp_path / "text.jpg").write_text("no picture")
    folder = tmp_path / "browser"
    with (
        served(finished, limits=Limits()) as site,
        browser.Browser(browser.executable(), folder) as page,
    ):
        page.go(site)
        page.until("document.querySelector('.spml-drop') != null")
        page.value(
            "document.querySelector('.spml-drop input').onclick = "
            "e => { e.preventDefault(); e.target.asked = 1 }"
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
                f"slider.value = {shift}; "
                "slider.dispatchEvent(new Event('input', {bubbles: true})); })()"
            )
            page.until(f"{count}.startsWith('{words}')")
        last = page.value("[...document.querySelectorAll('.spml-row')].at(-1).dataset.class")
        page.value(f"document.querySelector('[data-class=\"{last}\"]').click()")
        name = list(scenes.classes)[int(last)]
        page.until(f"document.querySelector('#spml-heat').alt == 'map of {name}'")
        assert page.value("document.querySelector('#spml-heat').src") != before
        page.value(
            "[...document.querySelectorAll('button[role=tab]')]"
            ".find(b => b.textContent.includes('Many')).click()"
        )
        page.until("document.querySelector('.spml-drop input[multiple]') != null")
        page.choose(".spml-drop input[multiple]", tmp_path / "scene.png", tmp_path / "text.jpg")
        page.until("document.querySelectorAll('.spml-table tr').length == 3")
        assert "text.jpg: not a picture" in page.value(
            "document.querySelector('.spml-table').innerText"
        )
        assert {
            url.partition("?")[0]
            for url in page.requests
            if not url.startswith((site, "data:", "about:"))
        } == set()
