import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from spml import metrics
from spml.data import load
from spml.errors import Interruption
from spml.files import read_json
from spml.train import fit
from tests.conftest import contents, failing, history, outcome, refused, same, spml

RESULT_KEYS = {
    *("method", "options", "data", "backbone", "seed", "epochs", "best_epoch", "selection"),
    *("val_map", "test_map", "per_class_ap", "images_per_second", "seconds"),
}


def test_the_run_folder_follows_the_contract(finished, scenes):
    result = read_json(finished / "result.json")
    assert set(result) >= RESULT_KEYS
    assert (result["device"], result["precision"]) == ("cpu", "32-true")
    lines = history(finished)
    assert [line["epoch"] for line in lines] == [0, 1, 2, 3]
    scores = sorted(path.name for path in (finished / "scores").iterdir())
    assert scores == ["test.npz", *(f"val-0{i}.npz" for i in range(4))]
    with np.load(finished / "observed.npz") as file:
        assert (file["observed"] == scenes.observed.labels).all()
        assert len(file["train_rows"]) == 128 and len(file["val_rows"]) == 48
        assert str(file["sha256"]) == scenes.sha256
    info = read_json(finished / "best" / "model.json")
    assert info["classes"] == list(scenes.classes) and info["thresholds"] == [0.5] * 10
    config = read_json(finished / "config.json")
    assert config["side_information"] == {"validation_labels": "complete"}


def test_result_is_the_best_epoch_by_validation_and_its_test_figure(finished, scenes):
    result = outcome(finished)
    lines = history(finished)[1:]
    best = max(lines, key=lambda line: line["val_map"])
    assert (result["best_epoch"], result["val_map"]) == (best["epoch"], best["val_map"])
    with np.load(finished / "scores" / "test.npz") as file:
        again = 100 * metrics.mean_average_precision(file["logits"], scenes.test.labels)
    # Scores are stored as float16, and 64 items are few.
    assert result["test_map"] == pytest.approx(again, abs=1)
    assert np.mean(list(result["per_class_ap"].values())) == pytest.approx(result["test_map"])


def test_the_same_seed_alone_gives_the_same_run_to_the_bit(finished, train, tmp_path):
    train("again")
    same(tmp_path / "again", finished)
    assert train("other", seed=1)["test_map"] != outcome(finished)["test_map"]


MOMENTS = {
    "before an epoch": ("spml.train.loop.epoch_order", 3),
    "in validation": ("spml.train.loop.validation_map", 4),
    "before a checkpoint": ("spml.runs.folder.RunFolder.save_checkpoint", 3),
    "in the test": ("spml.runs.record.test_figures", 1),
}


@pytest.mark.parametrize(("where", "call"), MOMENTS.values(), ids=MOMENTS)
def test_an_interrupted_run_resumes_to_the_same_result(finished, train, tmp_path, where, call):
    with failing(call, where=where):
        train()
    assert not (tmp_path / "run" / "result.json").exists()
    train(resume=True)
    same(tmp_path / "run", finished)


def test_interruption_before_the_first_epoch_leaves_no_files(train, tmp_path):
    with failing(1):
        train()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("way,left", [("resume", True), ("overwrite", False)])
def test_a_run_interrupted_before_it_resumes_is_unchanged(train, stopped, way, left):
    """As while pictures are decoded; a run to be replaced does not belong to the command."""
    before = contents(stopped, without=())
    with failing(1, where="spml.train.loop.Checkpoints") as ended:
        train(**{way: True})
    assert isinstance(ended.value, Interruption) == left and contents(stopped, without=()) == before


def test_the_first_line_describes_the_run_whenever_training_starts(
    scenes, quick, stopped, tmp_path, capsys
):
    for number, run in enumerate((tmp_path / "new", stopped)):
        fit(scenes, quick, run, resume=True)
        lines = capsys.readouterr().out.splitlines()
        assert re.search(
            r"10 classes; gr \(w 0 to 10, b -2 to -8 for 10 classes, \d+ observed positives\)"
            r" on tiny; cpu, 32-true, eager, adam, 128 scored at a time$",
            lines[0],
        )
        assert lines[1].startswith(("epoch  1", "resuming after epoch 3 of 3")[number])


def test_the_log_mentions_that_the_last_epoch_is_the_best(scenes, quick, tmp_path, capsys):
    hints, hint = [], "the last epoch is the best: more --epochs or a higher --lr"
    for epochs in (1, 2, 3, 4):
        result = fit(scenes, replace(quick, epochs=epochs), tmp_path / str(epochs))
        hints.append(hint in capsys.readouterr().out)
        assert hints[-1] == (result["best_epoch"] == epochs > 1)
    assert any(hints) and not all(hints)


def noisy(experiment, seed):
    """Replace every unobserved label of the train list by a random one."""
    observed = experiment.observed.labels
    coins = np.random.default_rng(seed).choice([-1, 1], observed.shape).astype(np.int8)
    complete = experiment.complete.with_labels(np.where(observed == 1, 1, coins))
    return replace(experiment, complete=complete)


@pytest.mark.parametrize("method", ["gr", "ll_r"])
def test_with_observed_selection_unobserved_labels_change_nothing(train, scenes, tmp_path, method):
    for name, data in {"true": scenes, "noise": noisy(scenes, 7)}.items():
        train(name, data, selection="observed", method=method)
    without = ("last.ckpt", "result.json")
    assert contents(tmp_path / "true", without) == contents(tmp_path / "noise", without)
    assert outcome(tmp_path / "true") == outcome(tmp_path / "noise")


def test_the_noise_would_be_seen_with_complete_selection(train, scenes, finished):
    assert train(data=noisy(scenes, 7))["val_map"] != outcome(finished)["val_map"]


def test_test_labels_choose_nothing(finished, train, scenes, tmp_path):
    train(data=replace(scenes, test=scenes.test.with_labels(-scenes.test.labels)))
    for name in ("best_epoch", "val_map", "options"):
        assert outcome(tmp_path / "run")[name] == outcome(finished)[name]


def test_without_a_test_split_the_test_figure_is_null(train, scenes):
    result = train(data=replace(scenes, test=None), epochs=1)
    assert result["test_map"] is None and result["per_class_ap"] is None


def test_full_trains_on_complete_labels_and_records_it(train, scenes, tmp_path):
    train(method="full", epochs=1)
    config = read_json(tmp_path / "run" / "config.json")
    assert config["side_information"]["training_labels"] == "complete"
    with refused("full trains on complete labels, which these data lack; give another --method"):
        train("no", replace(scenes, complete=None), method="full")
    assert not (tmp_path / "no").exists()


def test_patience_stops_when_validation_falls_below_the_best(train, tmp_path, monkeypatch):
    figures = iter([0, 50, 60, 57, 70])
    monkeypatch.setattr("spml.train.loop.validation_map", lambda *args: float(next(figures)))
    result = train(epochs=4, patience_drop=2)
    assert (result["best_epoch"], result["val_map"]) == (2, 60)
    assert len(history(tmp_path / "run")) == 4  # epochs 0 to 3


SMALL = {"size": 16, "batch_size": 4}


def test_an_unreadable_picture_names_file_and_line_and_leaves_nothing(pictures, train, tmp_path):
    (pictures.parent / "photos" / "2.jpg").write_bytes(b"not a picture")
    with refused(r"photos.csv, line 4: .*photos/2.jpg: not a picture that can be read.*remove"):
        train(data=load(pictures), **SMALL)
    assert not (tmp_path / "run").exists()


def test_pictures_train_end_to_end(pictures, train):
    result = train(data=load(pictures), **SMALL, epochs=6, flip=True, method="an")
    assert result["selection"] == "observed"
    # There are no negatives to rank positives against.
    assert result["test_map"] is None and 0 < result["test_score"] <= 100


def test_known_negatives_make_a_test_figure(pictures, train):
    text = pictures.read_text().replace("image,label", "image,label,negative")
    for name, others in {"red": "green|blue", "green": "red|blue", "blue": "red|green"}.items():
        text = text.replace(f",{name},", f",{name},{others},")
    pictures.write_text(text)
    result = train(data=load(pictures), **SMALL)
    assert result["selection"] == "complete" and result["test_map"] is not None
    assert "test_known" not in result


def test_a_figure_over_partly_known_test_labels_states_their_share(tmp_path, capsys):
    labels, items = np.tile(2 * np.eye(4, dtype=np.int8) - 1, (30, 1)), np.arange(120)
    # Of four in five test items only the positive is known.
    labels[80:][items[80:] % 5 > 0] *= np.eye(4, dtype=np.int8)[items[80:][items[80:] % 5 > 0] % 4]
    known = np.count_nonzero(labels[80:]) / labels[80:].size
    x = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    split = np.repeat(["train", "val", "test"], 40)
    np.savez(tmp_path / "f.npz", x=x, labels=labels, classes=np.array(list("abcd")), split=split)
    assert spml(f"train {tmp_path}/f.npz --epochs 1 --accelerator cpu --out {tmp_path}/run") == 0
    result = read_json(tmp_path / "run" / "result.json")
    assert result["test_known"] == pytest.approx(known) and 0.3 < known < 0.5
    assert f"over the {known:.1%} of test labels that are known" in capsys.readouterr().out
    assert f"over the {known:.1%} of test labels" in (tmp_path / "run/best/README.md").read_text()
    assert spml(f"eval {tmp_path}/run --split test") == 0
    warning = f"{known:.1%} of the labels are known: the figures use only these"
    assert warning in capsys.readouterr().err
    assert read_json(tmp_path / "run/eval-test.json")["known"] == result["test_known"]


def test_features_are_standardised_and_learned(train, features_file):
    data = load(features_file, labels="complete")
    data.observed.x[:] = data.observed.x * 1000 + 5e4
    data.test.x[:] = data.test.x * 1000 + 5e4
    own = {"backbone": "linear", "lr": 1e-3, "batch_size": 16, "epochs": 30}
    assert train(data=data, method="full", **own)["test_map"] > 90


def own_loss(logits, observed, *, epoch, scale=1.0):
    return scale * epoch * torch.nn.functional.softplus(logits * -observed).mean()


def test_a_custom_loss_trains_by_its_path(train):
    result = train(method="tests.train.test_loop:own_loss", epochs=1, options={"scale": 2.0})
    assert result["options"] == {"scale": 2.0}


def test_the_first_losses_equal_the_recorded_ones(train, tmp_path):
    """A refactoring must not change these."""
    train(epochs=2, options={"w": (0.0, 2.0), "b": (-2.0, -2.0)})
    lines = history(tmp_path / "run")[1:]
    assert [line["loss"] for line in lines] == pytest.approx(RECORDED, rel=1e-3)


RECORDED = [0.471912, 0.294512]
