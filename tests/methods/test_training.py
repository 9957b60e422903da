"""Methods through a run: they train, resume to the same bytes, and refuse what cannot work."""

from dataclasses import replace

import numpy as np
import pytest

from spml import losses
from spml.cli import main
from spml.data import load
from spml.data.images.loader import Feed
from spml.files import read_json
from spml.model import load_model
from spml.model.scoring import predict_logits
from spml.train import fit
from spml.train.resolve import resolve
from tests.conftest import assert_resumes, checkpoint, history, outcome, refused

OPTIONS = {  # so that the method has a state after the second of three epochs
    "em_apl": {"warmup": 1},
    "crisp": {"warmup": 1},
    "ll_cp": {"delta": 0.01},
    "lagc": {"first": 0.3},
}
MOVED = {"crop": 0.5, "flip": True}  # pictures that are cut and mirrored
IGNORE = {"rule": "ignore", "mean_inverse_positives": 0.4, "warmup": 1}
HEAT_MAPS = {"scl": 1.0, "grid": 4}
CASES = [
    *((name, OPTIONS.get(name, {}), {}) for name in losses.names() if losses.needs(name)),
    ("en", {"cl": 1.0, "ties": "random", "count": "uniform"}, MOVED),
    ("en", {"cl": 1.0, "scl": 1.0, "grid": 5, "start": "first"}, MOVED),
    ("mime", {"theta": 0.2, "warmup": 1}, {"lr": 1e-3, "head_lr": 1}),
    ("mime", IGNORE, {"lr": 1e-3, "head_lr": 1}),
]


@pytest.mark.parametrize(
    ("name", "options", "changes"), CASES, ids=[f"{name}-{len(o)}" for name, o, _ in CASES]
)
def test_a_method_with_memory_resumes_to_the_bit(scenes, quick, tmp_path, name, options, changes):
    state = assert_resumes(scenes, replace(quick, method=name, **changes), tmp_path, options)
    if name == "mime" and options:
        assert state["marked"].any() and not state["marked"].all()


def test_smile_on_feature_vectors_resumes_to_the_bit(features_file, quick, tmp_path):
    settings = replace(quick, method="smile", backbone="linear", lr=1e-2)
    assert_resumes(load(features_file, labels="complete"), settings, tmp_path)


def test_the_command_trains_smile_on_feature_vectors(features_file, tmp_path, capsys):
    words = f"train {features_file} --labels complete --method smile --set mu=0.2 --epochs 3"
    assert main([*words.split(), "--lr", "0.01", "--out", str(tmp_path / "run")]) == 0
    assert "smile on linear" in capsys.readouterr().out
    assert outcome(tmp_path / "run")["test_map"] > 60


@pytest.mark.parametrize(("name", "head"), [("mime", "query-normal"), ("en", "linear")])
def test_methods_for_pictures_work_on_feature_vectors_too(train, features_file, name, head):
    data = load(features_file, labels="complete")
    settings = {"backbone": None, "lr": 1e-3, "head_lr": 1, "batch_size": 16}
    result = train(data=data, method=name, **settings)
    assert result["head"] == head and result["backbone"] == "linear"


LAGC = "lagc compares embeddings of labels.*give --head query"
EN = "en with scl needs a class map .* give --head linear"


@pytest.mark.parametrize(
    ("name", "changes", "options", "message"),
    [
        *(("mime", {"head": h}, {}, "--head query-normal") for h in ("linear", "query", "boostlu")),
        ("mime", {"head_lr": 0.3}, {"rule": "ignore"}, "needs mean_inverse_positives"),
        ("smile", {"head": "linear"}, {}, "give --head query"),
        ("lagc", {"head": "linear"}, {}, LAGC),
        ("lagc", {"backbone": "linear"}, {}, "lagc needs views: two augmentations of a picture"),
        ("en", {"head": "query"}, HEAT_MAPS, EN),
        ("en", {"backbone": "linear"}, HEAT_MAPS, EN),
    ],
)
def test_a_run_is_refused_before_it_begins(
    train, features_file, tmp_path, name, changes, options, message
):
    on_vectors = changes.get("backbone") == "linear"
    data = load(features_file, labels="complete") if on_vectors else None
    with pytest.raises(ValueError, match=message):
        train(data=data, method=name, options=options, **changes)
    assert not (tmp_path / "run").exists()


def test_a_method_brings_its_head(scenes, quick):
    assert resolve(replace(quick, method="lagc"), scenes).head == "query"


def test_evaluation_of_normal_embeddings_is_deterministic(train, scenes, tmp_path):
    assert train(method="mime", lr=1e-3, head_lr=1, epochs=1)["head"] == "query-normal"
    model, _ = load_model(tmp_path / "run")
    first, second = (predict_logits(model, Feed(scenes.test, None), 16) for _ in range(2))
    assert (first == second).all()
    with np.load(tmp_path / "run" / "scores" / "test.npz") as file:
        assert np.allclose(file["logits"], first, atol=2e-3)


def test_a_number_from_complete_labels_is_recorded(train, tmp_path):
    train(method="mime", head_lr=0.3, epochs=1, options=IGNORE)
    side = read_json(tmp_path / "run" / "config.json")["side_information"]
    assert side["mean_inverse_positives"] == 0.4


def test_the_warm_up_that_crisp_chose_is_in_the_history(train, tmp_path):
    train(method="crisp", epochs=4)
    lines = history(tmp_path / "run")
    assert ["relative_loss" in line for line in lines] == [False, True, True, False, False]
    assert ["positives" in line for line in lines] == [False, False, True, True, False]
    assert [line.get("warmup") for line in lines] == [None, None, 2, 2, None]


def test_linear_init_sees_whole_pictures(train, tmp_path):
    result = train(method="en", epochs=1, linear_init=1, options=HEAT_MAPS, **MOVED)
    assert result["options"]["scl"] == 1.0
    state = checkpoint(tmp_path / "run")["method"]
    assert state["heat.seen"].all() and state["seen"].all()


def test_large_memory_is_reported_and_refused_if_it_is_not_free(
    scenes, quick, tmp_path, monkeypatch, capsys
):
    settings, options = replace(quick, method="en", epochs=1), {"scl": 1.0, "grid": 20}
    monkeypatch.setattr("spml.train.fitting.LARGE", 10**6)
    fit(scenes, settings, tmp_path / "run", options=options)
    assert "en keeps 1 MB for 128 items of 10 classes" in capsys.readouterr().out.splitlines()[0]
    fit(scenes, settings, tmp_path / "small")
    assert "en keeps" not in capsys.readouterr().out
    monkeypatch.setattr("spml.train.fitting.free_memory", lambda device: 10**6)
    with refused(r"en keeps 1 MB .*, but only 1 MB of memory are free; give other options or"):
        fit(scenes, settings, tmp_path / "big", options=options, quiet=True)
    assert not (tmp_path / "big").exists()
