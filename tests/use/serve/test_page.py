"""The page, as text and in a browser."""

import csv
import re

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from spml.use.predict.predict import predict
from spml.use.serve.tagger import Limits
from tests.use import browser
from tests.use.conftest import write_model
from tests.use.serve.serving import answer, picture, served

CHROMIUM = browser.executable()
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def test_the_page_names_no_other_host_and_runs_only_its_own_script(site):
    status, page, headers = answer(f"{site}/")
    text, policy = page.decode(), headers["Content-Security-Policy"]
    assert status == 200
    assert not re.search(r"https?://|url\(|@import|<b>blue|\sstyle=|\son\w+=", text)
    nonce = re.search(r"script-src 'nonce-([\w-]{20,})'", policy)[1]
    assert text.count(f'nonce="{nonce}"') == 2 == len(re.findall(r"<style|<script nonce", text))
    assert nonce not in answer(f"{site}/")[2]["Content-Security-Policy"]
    assert "form-action 'none'" in policy and "base-uri 'none'" in policy


@pytest.fixture
def page(tmp_path):
    with browser.Browser(CHROMIUM, tmp_path / "browser", downloads=tmp_path) as opened:
        yield opened


def shown(page, name):
    return page.value(f"document.getElementById('{name}').innerText")


def until_shown(page, name, text):
    page.until(f"document.getElementById('{name}').innerText.includes({text!r})")


def slide(page, name, value):
    slider = f"document.getElementById('{name}')"
    page.value(f"{slider}.value = {value}; {slider}.dispatchEvent(new Event('input'))")


@pytest.mark.slow
@in_a_browser
def test_a_user_sees_classes_moves_a_threshold_and_opens_a_map(finished, scenes, page, tmp_path):
    Image.fromarray(load_sample_image("china.jpg")).save(tmp_path / "photo.jpg")
    (tmp_path / "text.jpg").write_text("no picture")
    with served(finished, limits=Limits()) as site:
        page.go(site)
        page.value("files.onclick = e => { e.preventDefault(); e.target.asked = 1 }")
        page.value("files.focus()")
        page.press(" ")
        page.until("files.asked")  # as a click would
        page.choose("#files", tmp_path / "text.jpg")
        until_shown(page, "error", "text.jpg: not a picture")
        page.choose("#files", tmp_path / "photo.jpg")
        page.until("document.getElementById('map').naturalWidth > 100")
        before = page.value("document.getElementById('map').src")
        own = shown(page, "count")
        assert page.value("document.querySelectorAll('#bars li').length") == 10
        assert page.value("document.getElementById('error').hidden")
        slide(page, "shift", -1)
        until_shown(page, "count", "10 of 10")
        slide(page, "shift", 1)
        until_shown(page, "count", "0 of 10")
        slide(page, "shift", 0.5)
        slide(page, "cut", 0)  # of the most probable class
        until_shown(page, "count", "1 of 10")
        page.click("#reset")
        until_shown(page, "count", own)

        last = page.value("[...document.querySelectorAll('#bars button')].at(-1).dataset.class")
        page.click(f"[data-class='{last}']")
        page.until(f"document.getElementById('map').alt == 'map of {scenes.classes[int(last)]}'")
        assert page.value("document.getElementById('map').src") != before
        assert page.value("document.activeElement.dataset.class") == last  # redrawn, still focused
        assert all(url.startswith((site, "blob:", "data:")) for url in page.requests)


@pytest.mark.slow
@in_a_browser
def test_the_saved_table_of_many_pictures_is_that_of_predict(page, tmp_path):
    low = [[[0.0, 1.0], [-16.0, -15.0]]] * 3  # probabilities round to 0 at a threshold above 0
    classes, files = ["image", '-cla,"ss', "tags"], [tmp_path / "a.png", tmp_path / 'b,"c.png']
    run = write_model(tmp_path / "run", classes, thresholds=[0.1, 1e-8, 1e-8], calibration=low)
    for number, file in enumerate(files):
        file.write_bytes(picture(colour=(9, 200 * number, 80)))
    (tmp_path / "bad.png").write_text("text")
    predict(run, files, tmp_path / "expected.csv")
    with served(run) as site:
        page.go(site)
        page.choose("#files", *files, tmp_path / "bad.png")
        until_shown(page, "note", "3 pictures")
        assert "bad.png: not a picture" in shown(page, "rows")
        page.click("#save")
        saved = tmp_path / "tags.csv"
        page.downloaded(saved)
    expected = (tmp_path / "expected.csv").read_text().replace(f"{tmp_path}/", "")
    assert saved.read_bytes().decode() == expected.replace("\n", "\r\n")
    with saved.open(newline="") as file:
        assert [len(row) for row in csv.reader(file)] == [5, 5, 5]


@pytest.mark.slow
@in_a_browser
def test_feature_values_are_typed_and_a_token_is_the_password(make_model, page):
    with served(make_model(features=3), token="secret") as site:
        page.go(site.replace("//", "//anyone:secret@"))
        page.value("document.getElementById('values').value = '1, -2\\n3e-1'")
        page.click("#vector button")
        until_shown(page, "count", "of 3 classes")
        page.value("document.getElementById('values').value = '1 x'")
        page.click("#vector button")
        until_shown(page, "error", "with 3 finite numbers")


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("width", [320, 1200])
def test_the_page_fits_narrow_and_wide_windows(small_model, page, tmp_path, width):
    x = np.zeros((900, 40, 3), np.uint8)
    Image.fromarray(x).save(tmp_path / "tall.png")
    window = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.call("Emulation.setDeviceMetricsOverride", **window)
    with served(small_model) as site:
        page.go(site)
        page.choose("#files", tmp_path / "tall.png")
        page.until("document.getElementById('map').naturalWidth > 100")
        assert page.value("document.documentElement.scrollWidth") <= width
