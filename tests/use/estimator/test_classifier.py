import json
import pickle
import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import spml
from spml import losses
from spml.errors import UserError
from spml.files import read_json
from spml.model import load_model
from spml.use.estimator import classifier as estimator
from spml.use.estimator.inputs import labels
from spml.use.evaluate import run_data
from spml.use.predict.predict import predict

NAMES = np.array(["ant", "bee", "cat", "dog", "eel"])
INDICATOR = "predict gives an indicator (n, C), not a class per item"
EXPECTED = {
    "check_classifiers_train": INDICATOR,
    "check_classifiers_classes": INDICATOR,
    "check_decision_proba_consistency": "of two classes, each has a column of logits of its own",
    "check_methods_sample_order_invariance": "float32 products depend on a row's place in a batch",
    "check_supervised_y_2d": "a column (n, 1) holds 1, 0 and -1 of one class, not a class per item",
}


@pytest.fixture(scope="module")
def data():
    """Features, complete labels, and one positive of each item by name."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 12)).astype(np.float32)
    scores = x @ rng.normal(size=(12, 5))
    truth = (scores > 3).astype(int)
    truth[np.arange(300), scores.argmax(axis=1)] = 1
    single = np.where(truth == 1, rng.random(truth.shape), -1).argmax(axis=1)
    return x, truth, NAMES[single]


def make(**values):
    how = {"method": "gr", "epochs": 2, "random_state": 0, "device": "cpu", **values}
    return spml.SinglePositiveClassifier(**how)


@pytest.fixture(scope="module")
def fitted(data):
    return make(method=None, epochs=30).fit(data[0], data[2])


def test_it_learns_every_class_from_one_positive_per_item(data, fitted):
    x, truth, _ = data
    assert list(fitted.classes_) == list(NAMES) and fitted.n_features_in_ == 12
    assert fitted.result_["method"] in losses.names()  # the winner of a race
    logits, probabilities = fitted.decision_function(x), fitted.predict_proba(x)
    assert probabilities == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-6)
    predicted = fitted.predict(x)
    assert predicted.shape == truth.shape and predicted.dtype == np.int64
    assert (predicted == (probabilities >= 0.5)).all()
    assert fitted.score(x, truth) == pytest.approx(average_precision_score(truth, logits))
    assert fitted.score(x, truth) > 0.8 > truth.mean() + 0.2


def test_score_leaves_out_unknown_entries_only_if_negatives_are_known(data, fitted):
    x, truth, single = data
    signed = np.where(truth == 1, 1, -1)
    assert fitted.score(x, signed) == fitted.score(x, truth)
    holes = np.where(np.random.default_rng(1).random(truth.shape) < 0.5, 0, signed)
    logits = fitted.decision_function(x)
    by_class = [
        average_precision_score(truth[known] == 1, logits[known])
        for truth, logits, known in zip(holes.T, logits.T, holes.T != 0, strict=True)
    ]
    assert fitted.score(x, holes) == pytest.approx(np.mean(by_class))
    onehot = (single[:, None] == NAMES).astype(int)
    assert fitted.score(x, single) == fitted.score(x, onehot)
    with pytest.raises(ValueError, match="no label at all"):
        fitted.score(x, np.zeros_like(truth))
    with pytest.raises(ValueError, match="'fox' is not among the 5 classes"):
        fitted.score(x[:1], ["fox"])


def test_every_form_of_y_gives_the_same_labels(data):
    single = data[2]
    onehot = (single[:, None] == NAMES).astype(int)
    forms = {
        "names": single,
        "list": single.tolist(),
        "lists": [[name] for name in single],
        "sets": [{name} for name in single],
        "dense": onehot,
        "bool": onehot.astype(bool),
        "rows": onehot.tolist(),
        "tensor": torch.from_numpy(onehot),
        "csr": scipy.sparse.csr_array(onehot),
        "coo": scipy.sparse.coo_matrix(onehot.astype(float)),
    }
    for form, y in forms.items():
        classes, known = labels(y, None)
        assert (known.rows(range(300)) == onehot).all(), form
        named = form in ("names", "list", "lists", "sets")
        assert list(classes) == (list(NAMES) if named else list(range(5)))


def test_tensors_of_any_precision_are_accepted(data):
    x, single = data[0], data[2]
    rounded = torch.from_numpy(x).bfloat16()
    first, second = (
        make().fit(values, single).decision_function(values)
        for values in (rounded, rounded.float())
    )
    assert (first == second).all()


def test_columns_of_a_frame_are_matched_by_name(data, fitted):
    pandas = pytest.importorskip("pandas")
    x, truth, _ = data
    frame = pandas.DataFrame(truth, columns=list(NAMES))
    assert list(make(epochs=1).fit(x, frame).classes_) == list(NAMES)
    unnamed = pandas.DataFrame(truth)  # in order
    for y in (frame[list(NAMES[::-1])], frame, unnamed):
        assert fitted.score(x, y) == fitted.score(x, truth)
    message = r"y has a column 'fox', which is not one of the classes \('ant', "
    with pytest.raises(ValueError, match=message):
        fitted.score(x, frame.rename(columns={"ant": "fox"}))
    with pytest.raises(ValueError, match="name each column"):
        fitted.score(x, frame[["ant"]])


def test_given_classes_keep_their_order_and_may_be_absent_from_y(data):
    x, _, single = data
    model = make(classes=["fox", *NAMES[::-1]]).fit(x, single)
    assert list(model.classes_) == ["fox", *NAMES[::-1]] and model.predict(x).shape == (300, 6)
    assert 0 < model.score(x, single) < 1


def test_known_negatives_and_unlabelled_rows_are_used_as_such(data):
    x, truth, single = data
    observed = (single[:, None] == NAMES).astype(int)
    observed[:20] = 0
    plain = make().fit(x, observed).decision_function(x)
    known = np.where((truth == 0) & (np.arange(300)[:, None] % 2 == 0), -1, observed)
    assert not np.array_equal(make().fit(x, known).decision_function(x), plain)


@pytest.mark.parametrize("method", losses.names())
def test_any_method_by_name(data, method):
    x, truth, single = data
    how = {"method": method, "epochs": 1, "batch_size": 64}
    if method in ("boostlu", "lagc"):
        with pytest.raises(ValueError, match=r"needs a feature map|needs views"):
            make(**how).fit(x, single)
        x = np.random.default_rng(0).integers(0, 256, (300, 8, 8, 3), np.uint8)
        how["backbone"] = "tiny"
    model = make(**how).fit(x, truth if method == "full" else single)
    assert model.predict_proba(x).shape == (300, 5)


def test_options_thresholds_and_validation_reach_the_run(data):
    x, _, single = data
    model = make(options={"q3": 1.5}, thresholds=[0, 0, 1, 1, 1], validation=None).fit(x, single)
    assert model.result_["options"]["q3"] == 1.5
    assert (model.predict(x)[:, :2] == 1).all() and (model.predict(x)[:, 2:] == 0).all()
    assert model.result_["val_map"] is None and model.result_["best_epoch"] == 2
    assert make(validation=0.5).fit(x, single).result_["val_map"] > 0


def test_the_same_random_state_gives_the_same_and_none_gives_another(data):
    x, _, single = data
    first, second = make().fit(x, single), make().fit(x, single)
    assert (first.decision_function(x) == second.decision_function(x)).all()
    other = make(random_state=1).fit(x, single)
    assert not np.array_equal(other.decision_function(x), first.decision_function(x))


def test_models_trained_in_threads_are_those_trained_one_by_one(data, monkeypatch):
    x, _, one = data
    seen, fit = [], estimator.fit

    def watched(*args, **how):
        seen.append("begun")
        time.sleep(0.05)  # gives the other thread time to start
        result = fit(*args, **how)
        seen.append("done")
        return result

    monkeypatch.setattr(estimator, "fit", watched)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: make().fit(x, one).decision_function(x), range(2))
    assert seen == ["begun", "done"] * 2 and (first == second).all()


def test_the_global_random_state_is_not_changed(data):
    drawn = []
    for _ in range(2):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        if drawn:
            make().fit(data[0], data[2])
        drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert drawn[0] == drawn[1]


def test_pickling_and_cloning(data, fitted):
    x = data[0]
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict_proba(x) == fitted.predict_proba(x)).all()
    fresh = clone(fitted).set_params(epochs=1)
    assert fresh.get_params()["epochs"] == 1 and not hasattr(fresh, "model_")
    with pytest.raises(ValueError, match="not fitted"):
        fresh.predict(x)


def test_pipelines_cross_validation_and_search(data):
    x, truth, single = data
    pipe = make_pipeline(StandardScaler(), make()).fit(x, single)
    assert pipe.predict(x).shape == truth.shape and 0 < pipe.score(x, truth) <= 1
    scores = cross_val_score(make(classes=NAMES), x, single, cv=3)
    assert scores.shape == (3,) and np.isfinite(scores).all()
    how = {"cv": 2, "scoring": "average_precision"}
    grid = {"method": ["an", "gr"], "epochs": np.arange(1, 3)}
    search = GridSearchCV(make(), grid, **how).fit(x, truth)
    assert search.best_params_["method"] in ("an", "gr")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_given_run_folder_is_kept_and_replaced_only_on_request(data, tmp_path):
    x, _, single = data
    make(folder=tmp_path / "run").fit(x, single)
    assert (tmp_path / "run" / "history.jsonl").exists()
    with pytest.raises(UserError, match="already holds a run; give overwrite=True or another"):
        make(folder=tmp_path / "run").fit(x, single)
    make(folder=tmp_path / "run", overwrite=True, epochs=1).fit(x, single)
    config = read_json(tmp_path / "run" / "config.json")
    for change, message in (
        ({}, "trained on arrays that were given in Python, and keeps no copy"),
        ({"data": "pictures", "root": None}, "pictures: no such file here; give the command in"),
        ({"labels": ["observed"]}, r"says labels = \['observed'\], which no run has"),
    ):
        with pytest.raises(UserError, match=message):
            run_data({**config, **change}, list(NAMES), None)
    assert load_model(tmp_path / "run")[1].classes == list(NAMES)


def test_the_run_folder_has_the_thresholds_that_were_given(data, tmp_path):
    x, _, single = data
    how = {"folder": tmp_path / "run", "thresholds": np.linspace(0.3, 0.6, len(NAMES))}
    model = make(**how).fit(x, single)
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    predict(tmp_path / "run", [tmp_path / "x.npy"], tmp_path / "tags.jsonl")
    tags = [json.loads(line)["tags"] for line in (tmp_path / "tags.jsonl").read_text().splitlines()]
    assert tags == [list(np.array(NAMES)[row == 1]) for row in model.predict(x)]
    assert any(0 < len(row) < len(NAMES) for row in tags)
    assert "| 0.3 |" in (tmp_path / "run" / "best" / "README.md").read_text()


def test_no_files_remain_without_a_folder(data, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make().fit(data[0], data[2])
    assert not any(tmp_path.iterdir())


def test_pictures_as_paths_and_as_arrays(pictures, tmp_path):
    paths = sorted((pictures.parent / "photos").iterdir())
    colours = [["red", "green", "blue"][int(path.stem) % 3] for path in paths]
    how = {"backbone": "tiny", "size": 16, "batch_size": 4, "validation": 0.25}
    by_path = make(**how).fit(paths, colours)
    opened = [Image.open(path).convert("RGB").resize((16, 16)) for path in paths]
    arrays = np.stack(list(map(np.asarray, opened)))
    by_array = make(**how).fit(arrays, colours)
    names = list(map(str, paths))
    for items in (paths, names, np.array(names)):
        assert by_path.predict_proba(items).shape == (12, 3)
    last = by_array.decision_function(np.moveaxis(arrays, 3, 1))
    assert (by_array.decision_function(arrays) == last).all()
    (tmp_path / "text.jpg").write_text("no picture")
    with pytest.raises(ValueError, match=r"text.jpg: not a picture"):
        by_path.predict([*paths, tmp_path / "text.jpg"])
    with pytest.raises(ValueError, match="trained on pictures"):
        by_path.predict(np.zeros((2, 3)))


def test_non_square_pictures_are_preprocessed_as_in_training(tmp_path):
    x = np.random.default_rng(0).integers(256, size=(40, 3, 12, 20), dtype=np.uint8)
    model = make(backbone="tiny", batch_size=8, folder=tmp_path / "run").fit(x, np.arange(40) % 3)
    epoch = model.result_["best_epoch"]
    chosen = np.load(tmp_path / "run" / "scores" / f"val-{epoch:02d}.npz")["logits"]
    rows = np.load(tmp_path / "run" / "observed.npz")["val_rows"]
    assert model.decision_function(x[rows]) == pytest.approx(chosen, abs=2e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": ["ant"] * 300}, "one class, 'ant'"),
        ({"rows": 1}, "n_samples = 1"),
        ({"y": np.zeros((300, 5))}, "no label at all"),
        ({"y": [[] for _ in range(300)]}, "no label at all"),
        ({"y": np.full((300, 5), 2)}, "only 1 .* are labels"),
        ({"y": ["ant"] * 299}, "inconsistent numbers of samples: 300 in X, 299 in y"),
        ({"y": np.linspace(0.5, 1, 300)}, "Unknown label type: continuous, 0.5 in row 0"),
        ({"y": ["ant", "ant|bee"] * 150}, "row 1 of y: 'ant.bee' is several names joined by"),
        ({"y": [["ant"], [3]] * 150}, "names and numbers"),
        ({"x": np.full((300, 12), np.nan)}, "NaN"),
        ({"x": np.full((300, 12), 1e300)}, "too large|infinity"),
        ({"method": "grr"}, "no method 'grr'; 'gr'"),
        ({"options": {"q9": 1}}, "no option 'q9'"),
        ({"thresholds": [0.5]}, "for each of 5 classes"),
        ({"thresholds": 2}, "give a probability"),
        ({"method": None, "options": {"q9": 1}}, "'q9': method 'auto' sets .* name a method"),
        ({"selection": "test"}, "must be 'complete' or 'observed', not 'test'"),
        ({"method": None, "selection": "test"}, "must be 'complete' or 'observed', not 'test'"),
        ({"backbone": "resnet18"}, "feature vectors take the backbone 'linear'"),
        ({"selection": "complete"}, "needs complete validation labels"),
        ({"method": None, "selection": "complete"}, "needs complete validation labels"),
    ],
)
def test_invalid_arguments_raise_a_value_error_of_one_line(data, change, message):
    x, y = change.pop("x", data[0]), change.pop("y", data[2])
    rows = change.pop("rows", None)
    with pytest.raises(ValueError, match=message):
        make(**change).fit(x[:rows], y[:rows])


def test_validation_rows_without_labels_raise_an_error(data):
    y = np.zeros((300, 5), int)
    y[0, 0] = 1
    for seed in range(4):  # whichever part the only label falls in
        with pytest.raises(ValueError, match="validation=None"):
            make(random_state=seed).fit(data[0], y)
    assert make(validation=None).fit(data[0], y).predict(data[0]).shape == (300, 5)


def test_probabilities_depend_on_the_place_in_a_batch_by_rounding_alone(data, fitted):
    x, order = data[0], np.random.default_rng(0).permutation(300)
    logits, probabilities = fitted.decision_function(x), fitted.predict_proba(x)
    np.testing.assert_allclose(fitted.decision_function(x[order]), logits[order], atol=2e-6)
    for rows in (order, order[:7], order[:1]):
        np.testing.assert_allclose(fitted.predict_proba(x[rows]), probabilities[rows], atol=5e-7)


def test_it_is_an_estimator_as_far_as_many_labels_allow():
    check_estimator(make(epochs=1), expected_failed_checks=EXPECTED, on_skip=None)
