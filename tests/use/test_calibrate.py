import json
import shutil

import numpy as np
import pytest
import torch

from spml.cli import main
from spml.errors import UserError
from spml.model.store import read_info
from spml.use.aims import Aim, thresholds
from spml.use.assess import assess, run_data
from spml.use.calibrate import calibrate, undo


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def written(run):
    return (run / "calibration.json").read_bytes(), (run / "best" / "model.json").read_bytes()


def change(path, **arrays):
    with np.load(path) as file:
        kept = dict(file)
    np.savez_compressed(path, **(kept | arrays))


def scramble(run):
    """Every label of train and validation that was not observed becomes noise."""
    rng = np.random.default_rng(5)
    with np.load(run / "observed.npz") as file:
        observed = file["observed"][file["val_rows"]]
    noise = np.where(rng.random(observed.shape) < 0.5, 1, -1).astype(np.int8)
    change(run / "labels.npz", val_truth=np.where(observed == 0, noise, observed).astype(np.int8))


@pytest.mark.parametrize("words", [{}, {"method": "isotonic", "aim": "recall=0.8"}, {"positives_per_item": 1.5}])
def test_labels_that_were_not_observed_change_no_byte(run, words):
    calibrate(run, labels="observed", **words)
    before = written(run)
    undo(run)
    scramble(run)
    calibrate(run, labels="observed", **words)
    assert written(run) == before
    calibrate(run, labels="complete")
    assert written(run) != before


def observe_only(run):
    """Let the run be one whose epoch was chosen by observed labels."""
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "selection": "observed"}))


@pytest.fixture
def noisy(monkeypatch):
    """Makes noise of every label of the data's own complete tables that was not observed; counts how often."""
    from dataclasses import replace

    from spml.use import assess as room

    load, loaded = room.load, []

    def with_noise(*given, **named):
        found = load(*given, **named)
        table, rng = found.complete.labels, np.random.default_rng(6)
        noise = np.where(rng.random(table.shape) < 0.5, 1, -1).astype(np.int8)
        loaded.append(given)
        return replace(found, complete=found.complete.with_labels(np.where(found.observed.labels == 1, 1, noise)))

    def start():
        monkeypatch.setattr(room, "load", with_noise)
        return loaded

    return start


def test_scores_computed_from_the_data_read_no_other_label_either(run, noisy):
    shutil.rmtree(run / "scores")
    calibrate(run, labels="observed")
    before = written(run)
    undo(run)
    loaded = noisy()
    calibrate(run, labels="observed")
    assert written(run) == before and loaded


@pytest.fixture
def changed(monkeypatch):
    """Lets the data have changed since training, as the function given says."""
    from spml.use import assess as room

    load = room.load
    return lambda how: monkeypatch.setattr(room, "load", lambda *given, **named: how(load(*given, **named)))


def test_data_that_have_changed_are_not_taken_for_those_of_the_run(run, changed):
    from dataclasses import replace

    (run / "labels.npz").unlink()
    calibrate(run, labels="complete")
    before = written(run)
    undo(run)
    changed(lambda found: replace(found, test=None))
    calibrate(run, labels="complete")  # with the run's own scores, and the same labels of the same rows
    assert written(run) == before
    left = (run / "best" / "model.json").read_bytes()
    told = "has other rows or labels than the run was trained with, and may now"
    for how in (
        lambda found: replace(found, val_rows=found.train_rows[: len(found.val_rows)]),
        lambda found: replace(found, complete=found.complete.take(np.roll(np.arange(len(found.complete)), 1))),
    ):
        changed(how)
        with pytest.raises(UserError, match=told):
            calibrate(run, labels="complete")
    changed(lambda found: replace(found, test=None))
    shutil.rmtree(run / "scores")
    with pytest.raises(UserError, match=f"has no scores of its validation items, and its data cannot be had: .*{told}"):
        calibrate(run, labels="observed")
    (run / "observed.npz").unlink()
    with pytest.raises(UserError, match=f"has no observed.npz, and its data cannot be had: .*{told}"):
        calibrate(run, labels="observed")
    assert (run / "best" / "model.json").read_bytes() == left


def test_classes_of_the_data_that_are_not_the_models_are_told_apart():
    config = {"data": "digits", "labels": "complete", "selection": "observed", "observe_seed": 0, "split_seed": 0}
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    for classes, told in (
        (["nought", *names[1:]], "has 10 classes, the model 10, such as 'zero', which the model has not; put back"),
        ([*names, "ten"], "has 10 classes, the model 11; put back"),
        (names[::-1], "has the model's classes in another order; put back"),
    ):
        with pytest.raises(UserError, match=f"digits {told}"):
            run_data(config, classes, None)


def test_estimates_read_no_other_label(run, noisy):
    complete = assess(run, "val")
    observe_only(run)
    before = assess(run, "val"), (run / "eval-val.json").read_bytes()
    loaded = noisy()
    assert (assess(run, "val"), (run / "eval-val.json").read_bytes()) == before and loaded
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "selection": "complete"}))
    assert assess(run, "val") != complete  # the noise did arrive


def test_eval_tells_estimates_with_ranges(run, monkeypatch, capsys):
    observe_only(run)
    found = assess(run, "val")
    told = found["estimates"]["map"]
    assert found["labels"] == "observed" and told["low"] <= told["value"] <= told["high"] <= 100
    assert {"macro_f1", "micro_precision", "micro_recall", "positives_per_item"} <= set(found["estimates"])
    assert main(["eval", str(run), "--split", "val"]) == 0
    assert f"{told['low']:.4f} to {told['high']:.4f}" in capsys.readouterr().out
    monkeypatch.setattr("spml.use.assess.FEWEST_ITEMS", found["items"])
    assert "estimates" in assess(run, "val")
    monkeypatch.setattr("spml.use.assess.FEWEST_ITEMS", found["items"] + 1)
    assert "estimates" not in assess(run, "val")  # ranges of so few items would be far too small
    assert main(["eval", str(run), "--split", "val"]) == 0
    assert f"{found['items']} items have a positive, and a range needs {found['items'] + 1}" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr("spml.use.assess.MOST_ESTIMATED", 0)
    assert "estimates" not in assess(run, "val")


def test_calibrating_again_gives_the_same_and_undo_what_was_there(run):
    start = (run / "best" / "model.json").read_bytes()
    calibrate(run, labels="observed")
    first = written(run)
    calibrate(run, aim="precision=0.8", method="isotonic")
    assert written(run) != first
    calibrate(run, labels="observed")
    assert written(run) == first
    undo(run)
    assert (run / "best" / "model.json").read_bytes() == start and not (run / "calibration.json").exists()
    with pytest.raises(UserError, match="nothing to undo"):
        undo(run)


def test_the_card_tells_of_the_calibration_and_of_its_undoing(run):
    card = run / "best" / "README.md"
    before = card.read_text()
    calibrate(run, labels="observed", aim="recall=0.8")
    after, info = card.read_text(), read_info(run)
    assert "Probabilities are calibrated" in after and "aim recall=0.8, labels observed" in after
    assert all(f"| {threshold:.4g} |" in after for threshold in info.thresholds)
    undo(run)
    assert card.read_text() == before


def test_a_run_that_is_trained_anew_is_not_calibrated(run, scenes, quick):
    from dataclasses import replace

    from spml.train import fit

    calibrate(run)
    fit(scenes, replace(quick, epochs=1), run, overwrite=True, quiet=True)
    assert not (run / "calibration.json").exists() and read_info(run).thresholds == [0.5] * 10


def test_a_description_that_could_not_be_read_again_is_not_written(run):
    from dataclasses import replace

    from spml.model.store import write_info

    before = (run / "best" / "model.json").read_bytes()
    with pytest.raises(ValueError, match="must be probabilities"):
        write_info(run, replace(read_info(run), thresholds=[2.0] * 10))
    assert (run / "best" / "model.json").read_bytes() == before


def test_thresholds_set_by_hand_since_are_what_undo_brings_back(run):
    calibrate(run)
    path = run / "best" / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "thresholds": [0.25] * 10}))
    calibrate(run)
    undo(run)
    assert read_info(run).thresholds == [0.25] * 10


@pytest.mark.parametrize("method", ["temperature", "isotonic", "none"])
@pytest.mark.parametrize("labels", ["complete", "observed"])
def test_figures_are_those_of_the_model_as_it_is_stored(run, method, labels):
    record = calibrate(run, labels=labels, method=method)
    info = read_info(run)
    assert (info.calibration is None) == (method == "none") and all(0 < t < 1 for t in info.thresholds)
    if labels == "complete":
        told = assess(run, "val")["metrics"]
        value = 100 * record["overall"]["macro_f1"]["value"]
        assert told["macro_f1"] == pytest.approx(value, abs=1.5)  # which scores in half precision can move
    before, now = record["overall_before"]["macro_f1"], record["overall"]["macro_f1"]
    assert now["value"] >= before and now["low"] <= now["value"] <= now["high"]
    curves = record["reliability"]
    assert method == "none" or curves["calibrated"]["error"] < curves["logits"]["error"]
    assert ("drawn" in curves) == (labels == "observed")
    row = record["classes"][0]
    assert 0 < row["prior"]["low"] <= row["prior"]["value"] <= row["prior"]["high"] < 1 and 0 < row["propensity"] <= 1


def test_evaluation_uses_the_calibrated_probabilities(run):
    calibrate(run, method="temperature")
    found = assess(run, "test")["metrics"]
    info = read_info(run)
    shifted = [[x, (np.array(y) + 50).tolist()] for x, y in info.calibration]
    path = run / "best" / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "calibration": shifted}))
    other = assess(run, "test")["metrics"]
    assert (
        other["CR"] == 100 and other["map"] == found["map"] and other["calibration_error"] > found["calibration_error"]
    )


def test_aims_are_served(run):
    high = calibrate(run, labels="complete", aim="precision=0.7")
    full = calibrate(run, labels="complete", aim="recall=0.95")
    assert high["overall"]["macro_recall"]["value"] < full["overall"]["macro_recall"]["value"]
    assert full["overall"]["micro_recall"]["value"] > 0.85
    assert full["aim"] == "recall=0.95"


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_thresholds_serve_the_aim_by_the_probabilities_that_are_stored(run, method):
    calibrate(run, labels="complete", aim="precision=0.3", method=method)
    info = read_info(run)
    with np.load(run / "scores" / f"val-{info.training['epoch']:02d}.npz") as file:
        p = info.calibrate()(torch.from_numpy(file["logits"]).float()).double().sigmoid().numpy()
    assert info.thresholds == pytest.approx(thresholds(p, Aim("precision", 0.3)), abs=1e-3)


def test_thresholds_alone_tag_as_with_calibrated_probabilities(run):
    tags = [calibrate(run, labels="complete", method=method) for method in ("temperature", "none")]
    for one, other in zip(*(record["classes"] for record in tags), strict=True):
        assert one["precision"]["value"] == other["precision"]["value"] and one["recall"] == other["recall"]


def test_a_run_that_saw_observed_labels_is_calibrated_with_them(run):
    assert calibrate(run)["labels"] == "complete"
    observe_only(run)
    assert calibrate(run)["labels"] == "observed"


def test_what_cannot_be_calibrated_is_said_in_a_line(run, tmp_path, capsys):
    def line(*words, at=run):
        assert main(["calibrate", str(at), *words]) == 2
        return capsys.readouterr().err

    assert "is not a folder" in line(at=tmp_path / "none")
    assert "--aim f3" in line("--aim", "f3")
    assert "--seed must not be negative" in line("--seed", "-1")
    assert "--batch-size must be above 0" in line("--batch-size", "0")
    assert "complete ones tell it" in line("--positives-per-item", "2")
    assert "from 1 to the number of classes" in line("--positives-per-item", "50", "--labels", "observed")
    model = (run / "best" / "model.json").read_text()
    (run / "best" / "model.json").write_text(json.dumps(json.loads(model) | {"classes": list("abcdefghij")}))
    assert "other classes than the model" in line()
    fewer = {"classes": ["a"], "thresholds": [0.5]}
    (run / "best" / "model.json").write_text(json.dumps(json.loads(model) | fewer))
    assert "10 classes, the model 1" in line()
    (run / "best" / "model.json").write_text(model)
    for text in ("{}", '{"before": {"thr'):
        (run / "calibration.json").write_text(text)
        told = line()
        assert "not written by spml calibrate; move it away" in told and "train" not in told
    (run / "calibration.json").unlink()
    scores = run / "scores" / f"val-{read_info(run).training['epoch']:02d}.npz"
    scores.write_bytes(scores.read_bytes()[:100])
    assert "it is damaged" in line()
    np.savez(scores, logits=np.zeros((7, 10), np.float16))
    assert "do not fit 48 items of 10 classes" in line()
    scores.unlink()
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "data": str(tmp_path / "gone.npz")}))
    assert "no scores of its validation items, and its data cannot be had" in line()
    (run / "result.json").unlink()
    assert "not a finished run" in line()


def test_few_items_no_labels_and_classes_never_seen(run):
    with np.load(run / "observed.npz") as file:
        observed, rows = file["observed"], file["val_rows"]
    few = observed.copy()
    few[rows[20:]] = 0
    change(run / "observed.npz", observed=few)
    assert calibrate(run, labels="observed")["items_left_out"] == len(rows) - 20
    few[rows[19]] = 0
    change(run / "observed.npz", observed=few)
    with pytest.raises(UserError, match="19 validation items have a positive; calibration needs 20"):
        calibrate(run, labels="observed")
    column = observed.copy()
    column[rows, 4] = 0
    change(run / "observed.npz", observed=column)
    record = calibrate(run, labels="observed")
    assert record["items_left_out"] == int((column[rows] == 1).sum(axis=1).tolist().count(0))
    assert record["classes"][4]["name"] in record["few_positives"] and 0 < record["classes"][4]["prior"]["value"] < 0.5
    change(run / "observed.npz", observed=observed, val_rows=rows[:0])
    with pytest.raises(UserError, match="no validation items"):
        calibrate(run)


def test_scores_that_overflowed_or_are_no_numbers(run):
    scores = run / "scores" / f"val-{read_info(run).training['epoch']:02d}.npz"
    with np.load(scores) as file:
        logits = file["logits"].copy()
    logits[0, 0], logits[1, 1] = np.inf, -np.inf
    np.savez(scores, logits=logits)
    record = calibrate(run, labels="observed")
    assert np.isfinite(record["overall"]["map"]["value"])
    logits[2, 2] = np.nan
    np.savez(scores, logits=logits)
    with pytest.raises(UserError, match="NaN"):
        calibrate(run, labels="observed")


def test_the_command_shows_classes_ranges_and_where_it_was_written(run, capsys):
    assert main(["calibrate", str(run), "--labels", "observed"]) == 0
    out = capsys.readouterr().out
    assert "no other label was read" in out and "nine" in out and "macro-F1" in out and "±" in out
    assert "is not what these classes have" not in out and "sure enough" not in out
    for aim, words in (("precision=0.99", "sure enough of these"), ("recall=0.9", "is not what these classes have")):
        assert main(["calibrate", str(run), "--labels", "complete", "--aim", aim]) == 0
        told, name = capsys.readouterr().out, aim.partition("=")[0]
        record = json.loads((run / "calibration.json").read_text())
        short = [one["name"] for one in record["classes"] if one[name]["value"] < float(aim.partition("=")[2])]
        assert words in told and f"({len(short)})" in told and short[0] in told
    assert main(["calibrate", str(run), "--undo"]) == 0


def test_features_are_calibrated_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.random((200, 3)) < [0.6, 0.4, 0.3]
    y[~y.any(axis=1), 0] = True
    x = (y @ rng.normal(0, 2, (3, 5)) + rng.normal(0, 1, (200, 5))).astype(np.float32)
    np.savez("x.npz", x=x, labels=np.where(y, 1, -1).astype(np.int8), classes=np.array(["a", "b", "c"]))
    assert main(["train", "x.npz", "--labels", "complete", "--epochs", "2", "--quiet", "--out", "run"]) == 0
    assert main(["calibrate", "run", "--labels", "observed"]) == 0
    assert torch.isfinite(read_info(tmp_path / "run").calibrate()(torch.zeros(1, 3))).all()
