import math
from dataclasses import replace

import pytest
import torch

from spml.model import Classifier, ModelInfo, load_model, save_model
from spml.model.store import read_info
from tests.conftest import edit, refused

PREPROCESSING = {"kind": "pictures", "size": 40, "upright": True, "features": None}


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(1)
    info = ModelInfo(["a", "b"], "tiny", PREPROCESSING, [0.5, 0.25])
    save_model(tmp_path / "best", Classifier.build("tiny", 2), info)
    return tmp_path


@pytest.mark.parametrize("head", ["linear", "query", "query-normal", "query-normal:3"])
def test_a_stored_model_loads_unchanged(tmp_path, head):
    model = Classifier.build("linear", 3, features=8, head=head)
    model.standardise(torch.randn(20, 8) * 7)
    vectors = {**PREPROCESSING, "kind": "features", "features": 8}
    info = ModelInfo(list("abc"), "linear", vectors, [0.1, 0.2, 0.3], head=head)
    save_model(tmp_path, model, info)
    again, described = load_model(tmp_path)
    x = torch.randn(4, 8)
    model.eval().requires_grad_(False)  # attention uses another path in training
    assert described == info and type(again.head) is type(model.head)
    assert torch.equal(again(x), model(x))
    assert not again.training and not any(p.requires_grad for p in again.parameters())


def test_a_run_folder_and_its_best_are_the_same_model(folder):
    assert load_model(folder)[1] == load_model(folder / "best")[1] == load_model(str(folder))[1]


def test_weights_that_do_not_fit_their_description_are_refused(folder):
    edit(folder / "best/model.json", classes=["a", "b", "c"], thresholds=[0.5] * 3)
    with refused(r"does not fit its model.json"):
        load_model(folder)


@pytest.mark.parametrize(
    ("change_to", "message"),
    [
        ({"classes": ["a", "b", "c"]}, "3 classes but 2 thresholds"),
        ({"format": 99}, "newer version"),
        ({"classes": "ab"}, "list of names"),
        ({"classes": []}, "list of names"),
        ({"classes": [1, 2]}, "list of names"),
        ({"classes": ["a", "a"]}, "stands twice"),
        ({"thresholds": [None, 0.5]}, "probabilities"),
        ({"thresholds": [-0.1, 0.5]}, "probabilities"),
        ({"thresholds": [1.1, 0.5]}, "probabilities"),
        ({"thresholds": 0.5}, "probabilities"),
        ({"calibration": [[[0, 1], [0, 1]]]}, "a line for each of 2 classes"),
        ({"backbone": 5}, "backbone and head must be names"),
        ({"backbone": "tinny"}, r"model\.json: no backbone 'tinny'"),
        ({"preprocessing": 3}, "must be tables"),
        ({"training": None}, "must be tables"),
        ({"versions": ["1.0"]}, "must be tables"),
        ({"preprocessing": {}}, "preprocessing must say"),
        ({"preprocessing": {**PREPROCESSING, "kind": "sounds"}}, "preprocessing must say"),
        ({"preprocessing": {"kind": "pictures", "size": 40}}, "preprocessing must say"),
        (
            {"preprocessing": {**PREPROCESSING, "kind": "features"}},
            "features must be a whole number",
        ),
        ({"preprocessing": {**PREPROCESSING, "size": True}}, "size must be a whole number"),
        ({"preprocessing": {**PREPROCESSING, "size": 0}}, "size must be a whole number"),
        ({"format": "first"}, "not a model description"),
        ({"preprocessing": {**PREPROCESSING, "size": "abc"}}, "size must be a whole number"),
        ({"preprocessing": {**PREPROCESSING, "size": -4}}, "size must be a whole number"),
    ],
)
def test_a_changed_description_is_refused(folder, change_to, message):
    edit(folder / "best/model.json", **change_to)
    with refused(message):
        load_model(folder)


def test_thresholds_may_be_0_and_1(folder):
    edit(folder / "best/model.json", thresholds=[0, 1])
    assert load_model(folder)[1].thresholds == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "model.json: not JSON"),
        ("[]", "model.json: not a JSON object"),
        ('{"format": 1}', "not a model description .no 'classes'"),
    ],
)
def test_an_incomplete_description_names_the_missing_entry(folder, text, message):
    (folder / "best" / "model.json").write_text(text)
    with refused(message):
        read_info(folder)


def test_a_missing_part_is_named(folder, tmp_path):
    with refused(r"no model here \(it is not a folder\)"):
        load_model(tmp_path / "nowhere")
    (folder / "best" / "model.safetensors").unlink()
    with refused("no such file"):
        load_model(folder)
    (folder / "best" / "model.json").unlink()
    with refused(r"no model\.json"):
        load_model(folder)


def test_a_class_reaches_its_threshold_at_its_cut():
    info = ModelInfo(
        ["a", "b"],
        "tiny",
        PREPROCESSING,
        [0.5, 0.25],
        calibration=[[[0, 1], [-1, 1]], [[0, 1], [0, 1]]],
    )
    cuts = info.cuts()
    torch.testing.assert_close(info.calibrate()(cuts).sigmoid(), torch.tensor([0.5, 0.25]))
    assert cuts[0].item() == pytest.approx(0.5)
    low, high = 1e-9, 1 - 2**-23  # thresholds that tag nearly all or nearly nothing
    far = replace(info, thresholds=[low, high], calibration=None).cuts().double()
    assert far.tolist() == pytest.approx([math.log(low), -math.log(2**-23)], abs=1e-4)
    ends = replace(info, thresholds=[0.0, 1.0], calibration=None).cuts()
    assert ends.isfinite().all() and ends.sigmoid()[1] == 1
