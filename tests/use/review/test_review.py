import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from spml.data import LabelTable, load
from spml.errors import DataError, UserError
from spml.model import load_model, save_model
from spml.train import Settings, fit
from spml.use.review.ranking import Suggestion
from spml.use.review.review import NO_PICTURE, render, review
from tests.conftest import TINY, contents, edit, spml
from tests.use import browser as chromium
from tests.use.conftest import rows

needs_chromium = pytest.mark.skipif(
    chromium.executable() is None, reason="no chromium is installed, which shows the page"
)


def table(folder):
    return rows(folder / "suggestions.csv")


def cards(page):
    return json.loads(page.split('id="data">')[1].split("</script>")[0])


@pytest.fixture(scope="module")
def run(scenes_file, tmp_path_factory):
    """A run on scenes through the command line, so that its config names the data."""
    folder = tmp_path_factory.mktemp("review") / "run"
    settings = "--backbone tiny --epochs 3 --batch-size 32 --lr 3e-3 --flip False --quiet"
    assert spml(f"train {scenes_file} --labels complete {settings} --out {folder}") == 0
    return folder


def test_the_table_and_the_page_name_unknown_labels_alone_in_order(run, scenes, tmp_path, capsys):
    assert spml(f"review {run} --out {tmp_path}/out --count 30") == 0
    assert "30 labels to look at" in capsys.readouterr().out
    rows = table(tmp_path / "out")
    assert [row["rank"] for row in rows] == [str(i) for i in range(1, 31)]
    scores = [float(row["score"]) for row in rows]
    assert sorted(scores, reverse=True) == scores
    place = {item: i for i, item in enumerate(scenes.observed.items)}
    train = set(scenes.train_rows.tolist())
    for row in rows:
        number = place[row["image"]]
        known, _ = scenes.observed.known(number)
        labels = dict(zip(scenes.classes, scenes.observed.rows([number])[0], strict=True))
        assert labels[row["class"]] == 0 and number in train
        assert known == row["observed"].split("|")
        assert 0 <= float(row["probability"]) <= 1
    page = (tmp_path / "out" / "index.html").read_text()
    listed = [(card["image"], card["name"]) for card in cards(page)]
    assert listed == [(row["image"], row["class"]) for row in rows]
    for card in cards(page):
        with Image.open(tmp_path / "out" / card["picture"]) as picture:
            assert picture.size == (card["w"], card["h"])
        with Image.open(tmp_path / "out" / card["map"]) as m:
            coloured = np.count_nonzero(np.asarray(m)[..., 3] > 5)
            assert m.mode == "RGBA" and 0 < coloured < m.width * m.height  # in part
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize("flag", ["", " --unescaped"])
def test_names_that_a_spreadsheet_computes_are_text_in_the_table(features_file, here, flag):
    stored = dict(np.load(features_file))
    stored["classes"] = np.array(["=1+1", "@b", "c"])
    stored["labels"] = stored["labels"].clip(min=0)
    names = np.array([f"{'=+-@'[i % 4]}{i}" for i in range(120)])
    np.savez("f.npz", **stored, items=names)
    assert spml("train f.npz --epochs 1 --accelerator cpu --method an --quiet --out run") == 0
    assert spml(f"review run{flag}") == 0
    rows, mark = table(Path("run/review")), "" if flag else "'"
    assert {row["class"] for row in rows} <= {f"{mark}=1+1", f"{mark}@b", "c"}
    assert {row["image"] for row in rows} <= {f"{mark}{name}" for name in names}


def test_classes_numbers_and_splits_can_be_chosen(run, scenes, tmp_path):
    assert review(run, tmp_path / "a", count=9, classes=["two", "one"], per_class=4) == 8
    assert sorted(row["class"] for row in table(tmp_path / "a")) == ["one"] * 4 + ["two"] * 4
    review(run, tmp_path / "b", count=5, split="val")
    held_out = {scenes.observed.items[row] for row in scenes.val_rows}
    assert {row["image"] for row in table(tmp_path / "b")} <= held_out
    everything = review(run, tmp_path / "c", count=10**6, split="all", classes=["one"])
    assert everything == (scenes.observed.labels[:, list(scenes.classes).index("one")] == 0).sum()
    assert spml(f"review {run} --out {tmp_path}/d --classes 'one, two' --count 3") == 0
    with pytest.raises(UserError, match=r"no class 'tow'; did you mean 'two'\?"):
        review(run, tmp_path / "e", classes=["tow"])
    for words in ({"count": 0}, {"per_class": 0}, {"batch_size": 0}):
        with pytest.raises(UserError, match="must be above 0"):
            review(run, tmp_path / "e", **words)
    assert not (tmp_path / "e").exists()


def test_calibration_changes_probabilities_and_not_the_order(run, tmp_path):
    review(run, tmp_path / "before", count=40)
    other = shutil.copytree(run, tmp_path / "run")
    model, info = load_model(other)
    knots = [[[-20.0, 20.0], [-12.0, 8.0]]] * len(info.classes)
    save_model(other / "best", model, replace(info, calibration=knots))
    review(other, tmp_path / "after", count=40, min_precision=0)
    before, after = table(tmp_path / "before"), table(tmp_path / "after")
    pairs = [[(row["image"], row["class"]) for row in rows] for rows in (before, after)]
    assert pairs[0] == pairs[1]
    assert before[0]["probability"] > after[0]["probability"]


def test_noise_in_every_unobserved_label_changes_no_byte(scenes_file, tmp_path):
    """Train, review and merge with true and with random unobserved labels, but true test labels."""
    with np.load(scenes_file) as file:
        arrays = {name: file[name] for name in file.files}
    observed = load(scenes_file, labels="complete").observed
    listed = arrays["split"] != "test"
    data, seen = tmp_path / "data.npz", tmp_path / "seen.npz"
    items = np.array([f"scene {i}" for i in range(len(listed))])
    part = {name: arrays[name][listed] for name in ("x", "split")}
    np.savez(seen, labels=observed.labels, items=items[listed], classes=arrays["classes"], **part)
    noise = arrays["labels"].copy()
    coins = np.random.default_rng(5).choice([-1, 1], observed.labels.shape)
    noise[listed] = np.where(observed.labels == 1, 1, coins)
    settings = "--labels complete --selection observed --backbone tiny --epochs 2 --batch-size 32"
    outputs = {}
    for name, labels in {"true": arrays["labels"], "noise": noise}.items():
        np.savez(data, **{**arrays, "labels": labels, "items": items})
        run, out, answers = (tmp_path / name / one for one in ("run", "out", "answers.csv"))
        how = f"--observe file:{seen} {settings} --flip False --quiet"
        assert spml(f"train {data} {how} --out {run}") == 0
        assert spml(f"review {run} --out {out} --count 60 --split all") == 0
        lines = [f"{row['image']},{row['class']},1\n" for row in table(out)[:20]]
        answers.write_text("image,class,answer\n" + "".join(lines))
        assert spml(f"review {run} --answers {answers}") == 0
        with np.load(tmp_path / name / "labels.npz") as file:
            outputs[name] = {**contents(out, ()), "labels": file["labels"].tobytes()}
    assert (noise != arrays["labels"]).sum() > 500
    assert len(outputs["true"]) > 60 and outputs["true"] == outputs["noise"]


def test_the_list_of_a_calibrated_model_ends_at_the_least_probability(
    run, tmp_path, capsys, refused
):
    def listed(copy, words=""):
        out = tmp_path / f"list{words}"
        assert spml(f"review {copy} --out '{out}' --count 60 {words}") == 0
        return [float(row["probability"]) for row in table(out)]

    none = tmp_path / "none"
    least = f"review {run} --out {none} --min-precision"
    assert len(listed(run)) == 60
    assert "the model is not calibrated, so the list has as many labels" in capsys.readouterr().err
    assert "compares calibrated probabilities, and the model has none" in refused(f"{least} 0.1")
    assert "must be from 0 to 1, not 1.5" in refused(f"{least} 1.5")

    copy = shutil.copytree(run, tmp_path / "calibrated")
    model = copy / "best" / "model.json"
    stored = json.loads(model.read_text())
    stored["calibration"] = [[[-100, 100], [-100, 100]]] * len(stored["classes"])
    model.write_text(json.dumps(stored))
    every = listed(copy, "--min-precision 0")
    middle = sum(sorted(every)[29:31]) / 2
    assert len(every) == 60
    assert listed(copy, f"--min-precision {middle}") == [p for p in every if p >= middle]
    if max(every) >= 0.5:
        assert listed(copy, "--per-class 60") == [p for p in every if p >= 0.5]
    error = refused(f"review {copy} --out {none} --min-precision 1")
    assert "no unknown label has a probability of 1; the highest is 0." in error
    assert not none.exists()


def test_only_a_review_is_overwritten_and_only_on_request(run, tmp_path, refused):
    out = tmp_path / "out"
    line = f"review {run} --out {out} --count"
    assert spml(f"{line} 5") == 0
    before = contents(out, ())
    assert "already there; give --overwrite" in refused(f"{line} 5")
    assert contents(out, ()) == before
    assert spml(f"{line} 3 --overwrite") == 0
    assert len(table(out)) == 3
    (out / "answers.csv").write_text("mine")
    error = refused(f"{line} 5 --overwrite")
    assert "something else than spml review writes (answers.csv)" in error
    assert (out / "answers.csv").read_text() == "mine" and len(table(out)) == 3


def test_invalid_and_incomplete_runs_are_reported_in_one_line(run, tmp_path, capsys):
    def broken(name, change):
        other = shutil.copytree(run, tmp_path / name)
        change(other)
        return other

    classes = [f"c{i}" for i in range(10)]
    since = "(the names given) (the data have changed since the run was trained"
    changes = {
        "no result.json": lambda r: (r / "result.json").unlink(),
        "lacks data": lambda r: (r / "config.json").write_text('{"labels": 1}'),
        "folder where the run was trained": lambda r: edit(r / "config.json", data="gone.npz"),
        since: lambda r: edit(r / "best" / "model.json", classes=classes),
    }
    cases = {message: broken(f"run {i}", how) for i, (message, how) in enumerate(changes.items())}
    cases["no config.json"] = tmp_path
    for message, folder in cases.items():
        before = contents(folder, ())
        for words in ("", f"--answers {tmp_path}/a.csv"):
            (tmp_path / "a.csv").write_text("image,class,answer\n0,one,1\n")
            assert spml(f"review '{folder}' {words}") == 2, message
            errors = capsys.readouterr().err
            assert message in errors and errors.count("\n") == 1, errors
        (tmp_path / "a.csv").unlink()
        assert contents(folder, ()) == before or folder == tmp_path


def test_an_unreadable_picture_is_reported_and_left_out(pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(pictures.parent)
    assert spml(f"train photos.csv {TINY} --out run") == 0
    Path("photos/0.jpg").write_bytes(b"\xff\xd8\xff cut")
    assert spml("review run --out out --accept-changed-data") == 2
    message = capsys.readouterr().err
    assert "left out: photos.csv, line 2: photos/0.jpg" in message
    assert "1 pictures could not be read" in message
    images = [row["image"] for row in table(Path("out"))]
    assert len(images) == 7 * 2 and "photos/0.jpg" not in images
    for path in Path("photos").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UserError, match="nothing was written"):
        review(Path("run"), Path("none"), on_error=lambda error: None)
    with pytest.raises(DataError):
        review(Path("run"), Path("none"))
    assert not Path("none").exists()


def test_known_labels_are_listed_with_at_most_three_negatives_and_names_stay_text():
    odd = "</script><b>red & 'x'"
    labels = np.array([[1, 1, -1, -1, -1], [0, -1, -1, -1, -1]], np.int8)
    known = LabelTable(["x", "y"], [odd, *"bcde"], labels)
    suggestions = [Suggestion(row, 0, 0.5, 0.0) for row in (0, 1)]
    page = render("", None, known, suggestions, [NO_PICTURE] * 2)
    listed = [card["known"] for card in cards(page)]
    assert listed == [[odd, "b", "not c", "not d", "not e"], ["not b", "not c", "not d", "…"]]
    assert page.count("</script>") == 2 and cards(page)[0]["name"] == odd


@pytest.fixture
def features(tmp_path):
    """A run on 40 feature vectors with three classes, 32 of them in its train split."""
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    arrays = {"x": x, "classes": np.array(["a", "b", "c"])}
    settings = Settings(method="gr", epochs=1, accelerator="cpu")
    for name, absent in (("run", 0), ("full", -1)):
        path = tmp_path / f"{name}.npz"
        np.savez(path, labels=np.where(x[:, :3] > 0.2, 1, absent).astype(np.int8), **arrays)
        fit(load(path), settings, tmp_path / name, quiet=True)
    return tmp_path / "run"


def test_items_are_scored_in_batches_and_refused_if_too_many(features, tmp_path, monkeypatch):
    progress = []
    monkeypatch.setattr("spml.use.stored_model.DENSE_LIMIT", 32 * 3)
    words = {"count": 1, "per_class": 1, "batch_size": 12}
    out, advance = tmp_path / "new" / "out", lambda *what: progress.append(what)
    assert review(features, out, advance=advance, **words) == 1
    assert progress[:3] == [("scoring", i, 32) for i in (12, 24, 32)]
    monkeypatch.setattr("spml.use.stored_model.DENSE_LIMIT", 32 * 3 - 1)
    with pytest.raises(UserError, match="32 items x 3 classes are too many"):
        review(features, tmp_path / "none")


def test_features_have_cards_without_pictures(features, tmp_path):
    assert review(features, tmp_path / "out", count=10) == 10
    assert not (tmp_path / "out" / "pictures").exists()
    with pytest.raises(UserError, match="nothing to suggest"):
        review(tmp_path / "full", tmp_path / "other")


@needs_chromium
def test_answers_by_mouse_and_keys_are_stored_undone_and_saved(run, tmp_path):
    out = tmp_path / "out"
    review(run, out, count=40)
    rows, count = table(out), "document.getElementById('count').textContent"
    profile, saved = tmp_path / "profile", tmp_path / "answers.csv"
    with chromium.Browser(chromium.executable(), profile, (1100, 900), tmp_path) as browser:
        browser.go((out / "index.html").as_uri())
        browser.until("document.querySelector('.photo').naturalWidth > 0")
        assert browser.value(count) == "0 of 40 answered: 0 yes, 0 no"
        browser.click("#card-0 .y")
        browser.click("#card-3 .n")
        assert browser.value(count) == "2 of 40 answered: 1 yes, 1 no"
        browser.click("#card-3 .y")  # a changed answer
        assert browser.value("textCell('=1') + textCell('a=1')") == "'=1a=1"
        browser.press("ArrowRight")
        browser.press("n")
        browser.press("y")
        browser.press("y")
        browser.press("u")
        assert browser.value(count) == "4 of 40 answered: 3 yes, 1 no"
        browser.press(" ")
        style = "getComputedStyle(document.querySelector('#card-0 .map'))"
        assert browser.value(f"{style}.display") == "block"
        browser.go((out / "index.html").as_uri())  # the answers are still there
        assert browser.until(count) == "4 of 40 answered: 3 yes, 1 no"
        browser.click("#undo")
        browser.press("y")
        browser.value("document.getElementById('show').value = 'answered'; filter()")
        assert browser.value("shown.filter(article => !article.hidden).length") == 4
        browser.click("#save")
        browser.downloaded(saved)
    expected = [(0, 1), (3, 1), (4, -1), (5, 1)]
    lines = [f"{rows[i]['image']},{rows[i]['class']},{value}" for i, value in expected]
    assert saved.read_text().splitlines() == ["image,class,answer", *lines]
    assert spml(f"review {run} --answers {saved} --out {tmp_path}/new.npz") == 0


@needs_chromium
def test_a_long_name_of_a_class_does_not_make_the_page_wider_than_the_window(tmp_path):
    known = LabelTable(["x"], ["red" * 70], np.zeros((1, 1)))
    page = render("", None, known, [Suggestion(0, 0, 0.5, 0.0)], [NO_PICTURE])
    (tmp_path / "index.html").write_text(page)
    profile = tmp_path / "profile"
    with chromium.Browser(chromium.executable(), profile, (900, 900)) as browser:
        browser.go((tmp_path / "index.html").as_uri())
        browser.until("document.querySelector('#classes option') !== null")
        assert browser.value("document.documentElement.scrollWidth") <= 900
