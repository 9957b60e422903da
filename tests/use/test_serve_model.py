"""Tagging of a picture's bytes, without a web server."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from spml.errors import UserError
from spml.use.predict.predict import predict
from spml.use.serve.tagger import Limits, RefusedError, Seen, Tagger


def png(width=10, height=6, colour="red"):
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def tagger(make_model):
    return Tagger(make_model(thresholds=[0.2, 0.6, 0.5]), Limits(bytes=len(png()), pixels=60))


def test_a_picture_at_the_limits_is_accepted_and_a_larger_one_refused(tagger):
    assert tagger.see(png()).probabilities.shape == (3,)
    for data, status, message in (
        (png() + b"\0", 413, "above .* MB"),
        (b"", 400, "no bytes came"),
        (b"GIF89a", 415, "not a picture that can be read"),
    ):
        with pytest.raises(RefusedError, match=f"^a.png: {message}") as refused:
            tagger.see(data, "C:\\photos\\a.png")
        assert refused.value.status == status
    wide = Tagger.__new__(Tagger)
    wide.__dict__.update(vars(tagger), limits=Limits(pixels=59))
    with pytest.raises(RefusedError, match=r"above 5.9e-05 megapixels") as refused:
        wide.see(png())
    assert refused.value.status == 413
    cut = png()[:45]
    with pytest.raises(RefusedError) as refused:
        tagger.see(cut)
    assert refused.value.status == 415


def test_names_of_clients_are_one_short_line(tagger):
    for name, reported in (
        ("/x/y.png", "y.png"),
        ("a\n b\x1b.png", "a b .png"),
        ("x" * 99, "x" * 80),
        ("a/", "picture"),
    ):
        with pytest.raises(RefusedError) as refused:
            tagger.see(b"", name)
        assert str(refused.value).startswith(f"{reported}: ")


def test_tags_reach_their_thresholds_and_the_most_probable_comes_first(tagger):
    def seen(*probabilities):
        p = np.array(probabilities)
        logits = (np.log(p) - np.log1p(-p)).astype(np.float32)
        return Seen(logits, p.astype(np.float32), torch.zeros(3, 1, 1), torch.zeros(3, 1, 1))

    assert tagger.tags(seen(0.21, 0.7, 0.49)) == ["green", "red"]
    assert tagger.tags(seen(0.5, 0.5, 0.9), [0.5, 0.6, 0.0]) == ["blue", "red"]
    assert tagger.tags(seen(0.1, 0.1, 0.1), [0.1 - 1e-7, 0.0, 0.2]) == ["red", "green"]


def test_answers_agree_with_predict_and_hold_no_path(tagger, make_model, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    predict(
        make_model("again", thresholds=[0.2, 0.6, 0.5]), [tmp_path / "a.png"], tmp_path / "p.csv"
    )
    answer = tagger.answer(tagger.see(png()))
    cells = (tmp_path / "p.csv").read_text().splitlines()[1].split(",")
    assert [float(cell) for cell in cells[2:]] == pytest.approx(answer["probabilities"], abs=2e-6)
    assert set(filter(None, cells[1].split("|"))) == set(answer["tags"]) and answer[
        "thresholds"
    ] == [0.2, 0.6, 0.5]
    about = tagger.about()
    assert (
        about["name"] == "model"
        and str(tmp_path) not in str(about)
        and about["calibrated"] is False
    )
    assert about["limits"] == {"bytes": len(png()), "pixels": 60}


def test_models_without_class_maps_are_refused_at_the_start(make_model):
    with pytest.raises(UserError, match="serve shows pictures"):
        Tagger(make_model(features=4), Limits())
