import json
import math
from dataclasses import replace

import pytest
import torch

from spml.model import Classifier, ModelInfo, load_model, save_model
from spml.model.store import read_info
from tests.conftest import refused

PREPROCESSING = {"kind": "pictures", "size": 40, "upright": True, "features": None}


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(1)
    info = ModelInfo(["a", "b"], "tiny", PREPROCESSING, [0.5, 0.25])
    save_model(tmp_path / "best", Classifier.build("tiny", 2), info)
    return tmp_path


def test_a_stored_model_loads_unchanged(tmp_path):
    model = Classifier.build("linear", 3, features=5)
    model.standardise(torch.randn(20, 5) * 7)
    info = ModelInfo(
        ["a", "b", "c"],
        "linear",
        {**PREPROCESSING, "kind": "features", "features": 5},
        [0.1, 0.2, 0.3],
    )
    save_model(tmp_path, model, info)
    again, described = load_model(tmp_path)
    x = torch.randn(4, 5)
    assert described == info and torch.equal(again(x), model.eval()(x))
    assert not again.training and not any(p.requires_grad for p in again.parameters())


def test_a_run_folder_and_its_best_are_the_same_model(folder):
    assert load_model(folder)[1] == load_model(folder / "best")[1] == load_model(str(folder))[1]


def change(folder, **values):
    path = folder / "best" / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_folders_without_a_model_are_refused_with_a_reason(folder, tmp_path):
    with refused("no model here"):
        load_model(tmp_path / "nowhere")
    change(folder, classes=["a", "b", "c"])
    with refused("3 classes but 2 thresholds"):
        load_model(folder)
    change(folder, classes=["a", "b", "c"], thresholds=[0.5] * 3)
    with refused(r"does not fit its model.json"):
        load_model(folder)
    change(folder, format=99)
    with refused("newer version"):
        load_model(folder)
    (folder / "best" / "model.json").write_text("{")
    with refused("not a model description"):
        load_model(folder)


def test_truncated_or_missing_weights_are_refused(folder):
    path = folder / "best" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:500])
    with refused("not a file of weights"):
        load_model(folder)
    path.unlink()
    with refused("no such file"):
        load_model(folder)


@pytest.mark.parametrize(
    ("change_to", "message"),
    [
        ({"classes": "ab"}, "list of names"),
        ({"classes": []}, "list of names"),
        ({"classes": [1, 2]}, "list of names"),
        ({"classes": ["a", "a"]}, "stands twice"),
        ({"thresholds": [None, 0.5]}, "probabilities"),
        ({"thresholds": [-0.1, 0.5]}, "probabilities"),
        ({"thresholds": [1.1, 0.5]}, "probabilities"),
        ({"thresholds": 0.5}, "probabilities"),
        ({"calibration": [[[0, 1], [0, 1]]]}, "a line for each of 2 classes"),
        ({"backbone": 5}, "backbone must be a name"),
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
    change(folder, **change_to)
    with refused(message):
        load_model(folder)


def test_thresholds_may_be_0_and_1(folder):
    change(folder, thresholds=[0, 1])
    assert load_model(folder)[1].thresholds == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"), [("[]", "no JSON object"), ('{"format": 1}', "no 'classes'")]
)
def test_an_incomplete_description_names_the_missing_entry(folder, text, message):
    (folder / "best" / "model.json").write_text(text)
    with refused(f"not a model description .{message}"):
        read_info(folder)


def test_a_missing_folder_and_one_without_a_model_have_different_messages(folder, tmp_path):
    with refused("it is not a folder"):
        read_info(tmp_path / "nowhere")
    (folder / "best" / "model.json").unlink()
    with refused(r"no model\.json"):
        read_info(folder)


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
