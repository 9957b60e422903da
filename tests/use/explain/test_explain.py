import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from spml.errors import UserError
from spml.model import Classifier, load_model
from spml.use.explain.class_maps import enlarged, from_threshold, full_colour, meaning, rounded
from spml.use.explain.explain import class_maps, explain, explain_worst, rank_mistakes
from tests.conftest import TINY, edit, noise, spml
from tests.use.conftest import huge_png


@pytest.mark.parametrize("head", ["linear", "boostlu"])
@pytest.mark.parametrize(
    "backbone,size", [("tiny", 48), ("resnet18", 64), ("vit_tiny_patch16_224", 224)]
)
def test_the_mean_of_a_map_is_the_logit(head, backbone, size):
    torch.manual_seed(0)
    model = Classifier.build(backbone, 5, head=head).double().eval()
    model.head.bias.data.normal_()
    x = noise(2, 3, size, size)
    with torch.inference_mode():
        logits, maps = class_maps(model, x)
        assert maps.shape[:2] == (2, 5) and maps.shape[2] == maps.shape[3] > 1
        torch.testing.assert_close(maps.mean(dim=(2, 3)), model(x), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(logits, model(x), rtol=0, atol=0)


def test_a_map_lies_where_its_evidence_is():
    """If only one place has features, the map of a class is its bias at all others."""
    torch.manual_seed(0)
    model = Classifier.build("resnet18", 4).eval()
    features = torch.zeros(1, 512, 3, 4)
    features[0, :, 1, 2] = torch.randn(512)
    model.features = lambda x: features
    _, maps = class_maps(model, noise(1, 3, 8, 8))
    for row in range(3):
        for column in range(4):
            expected = model.head.bias + (model.head.weight @ features[0, :, row, column])
            torch.testing.assert_close(maps[0, :, row, column], expected)


@pytest.mark.parametrize("head", ["query", "query-normal:8"])
def test_a_query_head_shows_its_attention(head):
    torch.manual_seed(0)
    model = Classifier.build("tiny", 3, head=head).eval()
    x = noise(2, 3, 32, 32)
    with torch.inference_mode():
        logits, maps = class_maps(model, x)
        torch.testing.assert_close(logits, model(x))
        torch.testing.assert_close(maps.sum(dim=(2, 3)), torch.ones(2, 3))
        seen, inside = [], model.head.decoder[-1].attention
        inside.register_forward_hook(
            lambda module, inputs, keywords, out: seen.append(out[1]), with_kwargs=True
        )
        class_maps(model, x)
        torch.testing.assert_close(maps, seen[-1].reshape(maps.shape))
        assert full_colour(model, maps[0]) == pytest.approx(maps[0].max().item())


def test_features_have_no_maps(make_model, tmp_path):
    with pytest.raises(UserError, match="which have no positions; class maps need pictures"):
        class_maps(Classifier.build("linear", 2, features=4), torch.zeros(1, 4))
    folder = make_model(features=4)
    with pytest.raises(UserError, match="explain needs pictures"):
        explain(folder, ["a.jpg"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_maps_as_drawn_start_at_the_threshold_of_the_calibrated_model(make_model):
    """The mean of a map is above 0 if and only if the class is a tag, for any calibration."""
    bent = [[-1.0, 0.0, 1.0], [-1.0, 2.0, 2.5]]
    lines = [[[-2.0, 2.0], [0.0, 6.0]], [[0.0, 1.0], [-4.0, -3.5]], bent]
    model, info = load_model(make_model(calibration=lines, thresholds=[0.3, 0.01, 0.8]))
    with torch.inference_mode():
        logits, maps = class_maps(model, noise(40, 3, 16, 16))
        tagged = info.calibrate()(logits).sigmoid() >= torch.tensor(info.thresholds)
    above = torch.stack([from_threshold(model, info, one) for one in maps]).mean(dim=(2, 3))
    torch.testing.assert_close(above, logits - info.cuts())
    assert ((above >= 0) == tagged).all() and tagged.any()
    _, plain = load_model(make_model("plain"))
    torch.testing.assert_close(from_threshold(model, plain, maps[0]), maps[0])
    query, info = load_model(make_model("query", head="query", thresholds=[0.3] * 3))
    one = maps[0]
    assert from_threshold(query, info, one) is one
    assert meaning(model).startswith("evidence in logits")
    assert meaning(query).startswith("attention of")


def test_enlarging_stays_within_the_map_and_keeps_places():
    maps = torch.tensor([[[0.0, 0.0], [0.0, 9.0]], [[-1.0, -1.0], [-1.0, -1.0]]])
    large = enlarged(maps, 40, 60)
    assert large.shape == (2, 40, 60) and large[1].eq(-1).all()
    assert large[0].min() >= 0 and large.max() <= 9
    assert large[0, -1, -1] == 9 and large[0, 0, 0] < 0.5
    assert enlarged(torch.ones(1, 1, 1), 5, 7).eq(1).all()


@pytest.mark.parametrize(
    ("value", "text"), [(251.3, "250"), (-0.4712, "-0.47"), (0.0, "0"), (1234567.0, "1.2e+06")]
)
def test_values_of_a_map_are_rounded_to_two_digits(value, text):
    assert rounded(torch.tensor(value)) == text


def test_overlays_keep_the_aspect_ratio_and_are_on_the_page(make_model, pictures, tmp_path):
    Image.new("RGB", (40, 10), "red").save(tmp_path / "wide.png")
    out = tmp_path / "maps"
    inputs, progress = [tmp_path / "wide.png", pictures.parent / "photos"], []
    assert explain(make_model(), inputs, out, top=2, advance=progress.append) == 13
    assert progress == [*range(1, 14)]
    page = (out / "index.html").read_text()
    named = re.findall(r'src="([^"]+)"', page)
    assert len(named) == 13 * 3 and all((out / name).is_file() for name in named)
    assert "http" not in page  # nothing from other hosts
    plain, first = Image.open(out / named[0]), Image.open(out / named[1])
    assert plain.size == (480, 120) and first.size[0] == 480 and first.size[1] > 120
    assert any(f"-{name}.png" in page for name in ("red", "green", "blue"))


def test_names_are_text_on_the_page(make_model, photo, tmp_path):
    odd = photo.rename(photo.with_name("a<i>&.png"))
    explain(make_model(classes=["<script>x"]), [odd], tmp_path / "m")
    page = (tmp_path / "m" / "index.html").read_text()
    assert "<script>x" not in page and "&lt;script&gt;x" in page and "a&lt;i&gt;&amp;.png" in page


def test_named_classes_are_shown_and_unknown_ones_refused(make_model, photo, tmp_path, refused):
    folder = make_model(classes=["red", "a, b"])
    assert spml(f"explain {folder} {photo} --out {tmp_path}/m --classes 'a, b'") == 0
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names == {"0001-3-a_b.png", "0001-3.png", "index.html"}
    error = refused(f"explain {folder} {photo} --out {tmp_path}/n --classes red,rad")
    assert "no class 'rad'; did you mean 'red'?" in error
    assert not (tmp_path / "n").exists()


def test_names_alike_in_file_names_keep_their_maps_and_are_below_if_the_font_lacks_them(
    make_model, photo, tmp_path
):
    run = make_model(classes=["狗", "猫", "Vögel", "сорока\u200b"])
    explain(run, [photo], tmp_path / "m", top=4)
    page = (tmp_path / "m" / "index.html").read_text()
    named = re.findall(r'src="([^"]+)"', page)
    assert len(named) == len(set(named)) == 5
    assert {path.name for path in (tmp_path / "m").iterdir()} == {*named, "index.html"}
    assert sorted(re.findall("<figcaption>(.+)</figcaption>", page)) == ["狗", "猫"]


def test_bad_pictures_are_reported_and_the_others_drawn(make_model, tmp_path, capsys):
    Image.new("RGB", (1, 1), "red").save(tmp_path / "one.png")
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "huge.png").write_bytes(huge_png())
    inputs = [str(tmp_path / name) for name in ("text.jpg", "huge.png", "gone.jpg", "one.png")]
    assert spml(f"explain {make_model()} {' '.join(inputs)} --out {tmp_path}/m") == 2
    error = capsys.readouterr().err
    assert error.count("left out") == 3 and "3 could not be read" in error and "megapixels" in error
    assert (tmp_path / "m" / "0001-one.png").exists()
    with pytest.raises(UserError, match="nothing was written"):
        explain(make_model(), inputs[:3], tmp_path / "none", on_error=lambda error: None)
    assert not [path for path in tmp_path.iterdir() if "none" in path.name]


def test_only_an_earlier_gallery_is_replaced(make_model, pictures, tmp_path):
    folder, photo, out = make_model(), pictures.parent / "photos" / "0.jpg", tmp_path / "maps"
    out.mkdir()
    explain(folder, [photo], out)  # an empty folder may be used
    with pytest.raises(UserError, match="already there"):
        explain(folder, [photo], out)
    with pytest.raises(UserError, match="already there"):
        explain_worst(tmp_path / "no run", out, count=3)  # before the slow part
    stale = next(out.glob("0001-0-*.png"))
    explain(folder, [photo.with_name("1.png")], out, overwrite=True)
    assert not stale.exists() and (out / "0001-1.png").exists()
    (out / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(out)
    mine = tmp_path / "album"
    mine.mkdir()
    (mine / "a.png").write_bytes(photo.read_bytes())
    (mine / "index.html").write_text("<p>my album")
    for other in (out, tmp_path / "file", tmp_path / "link", mine):
        with pytest.raises(UserError, match="something else"):
            explain(folder, [photo], other, overwrite=True)
    assert (mine / "a.png").exists() and (out / "notes.txt").read_text() == "mine"


def test_mistakes_are_ranked_by_how_wrong_they_are():
    logits = np.array([[3.0, -1.0, 2.0], [-4.0, 5.0, -2.0], [1.0, -3.0, -5.0]], np.float32)
    labels = np.array([[-1, 1, -1], [1, -1, 1], [1, 0, 0]], np.int8)
    tagged = logits >= 0
    ranked = [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]
    assert rank_mistakes(logits, tagged, labels, 4) == ranked[:4]
    assert rank_mistakes(logits, tagged, labels, 9) == ranked
    observed = np.maximum(labels, 0)  # an unknown label is no mistake
    assert rank_mistakes(logits, tagged, observed, 4) == [(1, 0), (1, 2), (0, 1)]
    assert rank_mistakes(logits, tagged, np.minimum(labels, 0), 2) == [(1, 1), (0, 0)]


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_worst_mistakes_of_a_run(finished, scenes, tmp_path, split):
    out = tmp_path / "worst"
    assert explain_worst(finished, out, count=6, split=split) == 6
    page = (out / "index.html").read_text()
    assert page.count('class="wrong"') == 6
    model, info = load_model(finished)
    table = scenes.test if split == "test" else scenes.complete.take(scenes.val_rows)
    with torch.inference_mode():
        p = model(torch.from_numpy(table.x)).sigmoid().numpy()
    missed = np.where((table.labels == 1) & (p < 0.5), p, 2)
    row, column = np.unravel_index(missed.argmin(), missed.shape)
    assert f"<h2>{table.items[row]}</h2>" in page
    assert f"missed: {info.classes[column]}, {p[row, column]:.3f}" in page


def test_pictures_or_worst_but_not_both(finished, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    for words in ("", "a.jpg --worst 3"):
        assert "give pictures, or --worst N" in refused(f"explain {finished} {words}")
    assert "--worst must be above 0" in refused(f"explain {finished} --worst 0")
    assert "--top must be above 0" in refused(f"explain {finished} a.jpg --top 0")
    (tmp_path / "half").mkdir()
    assert "no model here" in refused("explain half a.jpg")
    assert [path.name for path in tmp_path.iterdir()] == ["half"]


def test_missing_pictures_are_reported_and_observed_labels_give_only_missed_ones(
    pictures, tmp_path, monkeypatch, capsys, refused
):
    monkeypatch.chdir(pictures.parent)
    assert spml(f"train {pictures} {TINY} --out run") == 0
    description = Path("run/best/model.json")
    edit(description, thresholds=[0.999] * 3)
    Path("photos/9.png").unlink()
    assert spml("explain run --worst 9 --out worst") == 2
    error = capsys.readouterr().err
    assert error.count("photos/9.png") == 1 and "1 could not be read" in error
    page = Path("worst/index.html").read_text()
    assert page.count("missed: ") == 1 and ">wrong: " not in page and "11.png" in page
    edit(description, thresholds=[0.0] * 3)
    assert "no mistakes on val" in refused("explain run --worst 9 --split val --out none")
    assert not Path("none").exists()
    Path("photos").rename("elsewhere")
    assert spml("explain run --worst 9 --split val --out none") == 2
    message = "pictures could be read; nothing was written. give their folder with --root\n"
    assert capsys.readouterr().err.endswith(message)
