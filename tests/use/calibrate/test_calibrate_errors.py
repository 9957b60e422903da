"""Runs that cannot be calibrated, or only in part."""

from dataclasses import replace

import numpy as np
import pytest

from spml.errors import UserError
from spml.use.calibrate.calibrate import calibrate, undo
from tests.conftest import edit
from tests.use.conftest import change, scores_file, written


def test_changed_data_are_not_used_as_the_runs_data(run, changed):
    (run / "labels.npz").unlink()
    calibrate(run, labels="complete")
    before = written(run)
    undo(run)
    changed(lambda data: replace(data, test=None))
    calibrate(run, labels="complete")  # the run's own scores, and the same labels of the same rows
    assert written(run) == before
    left = (run / "best" / "model.json").read_bytes()
    message = (
        "has other rows or labels than the run was trained with, so its validation rows may be"
    )

    def shuffled(data):
        return data.complete.take(np.roll(np.arange(len(data.complete)), 1))

    for how in (
        lambda data: replace(data, val_rows=data.train_rows[: len(data.val_rows)]),
        lambda data: replace(data, complete=shuffled(data)),
    ):
        changed(how)
        with pytest.raises(UserError, match=message):
            calibrate(run, labels="complete")
    changed(lambda data: replace(data, test=None))
    lacking = {"scores": "scores of its validation items", "observed.npz": "observed.npz"}
    for name, text in lacking.items():
        (run / name).rename(run / f"{name}.away")
        error = f"has no {text}, and its data cannot be loaded: .*{message}"
        with pytest.raises(UserError, match=error):
            calibrate(run, labels="observed")
    assert (run / "best" / "model.json").read_bytes() == left


def test_runs_that_cannot_be_calibrated_are_reported_in_one_line(run, tmp_path, refused):
    def line(words="", at=run):
        return refused(f"calibrate {at} {words}")

    assert "is not a folder" in line(at=tmp_path / "none")
    assert "--aim f3" in line("--aim f3")
    assert "--seed must not be negative" in line("--seed -1")
    assert "--batch-size must be above 0" in line("--batch-size 0")
    assert "complete labels determine it" in line("--positives-per-item 2")
    many = line("--positives-per-item 50 --labels observed")
    assert "from 1 to the number of classes" in many
    model = (run / "best" / "model.json").read_text()
    edit(run / "best" / "model.json", classes=list("abcdefghij"))
    assert "other classes than the model" in line()
    edit(run / "best" / "model.json", classes=["a"], thresholds=[0.5])
    assert "10 classes, the model 1" in line()
    (run / "best" / "model.json").write_text(model)
    for text in ("{}", '{"before": {"thr'):
        (run / "calibration.json").write_text(text)
        message = line()
        assert "not written by spml calibrate; move it away" in message and "train" not in message
    (run / "calibration.json").unlink()
    scores = scores_file(run)
    scores.write_bytes(scores.read_bytes()[:100])
    assert "it is damaged" in line()
    np.savez(scores, logits=np.zeros((7, 10), np.float16))
    assert "do not fit 48 items of 10 classes" in line()
    scores.unlink()
    edit(run / "config.json", data=str(tmp_path / "gone.npz"))
    assert "no scores of its validation items, and its data cannot be loaded" in line()
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
    message = "19 validation items have a positive; calibration needs 20"
    with pytest.raises(UserError, match=message):
        calibrate(run, labels="observed")
    column = observed.copy()
    column[rows, 4] = 0
    change(run / "observed.npz", observed=column)
    record = calibrate(run, labels="observed")
    assert record["items_left_out"] == int((column[rows] == 1).sum(axis=1).tolist().count(0))
    assert record["classes"][4]["name"] in record["few_positives"]
    assert 0 < record["classes"][4]["prior"]["value"] < 0.5
    change(run / "observed.npz", observed=observed, val_rows=rows[:0])
    with pytest.raises(UserError, match="no validation items"):
        calibrate(run)


def test_scores_that_overflowed_or_are_no_numbers(run):
    scores = scores_file(run)
    logits = np.load(scores)["logits"]
    logits[0, 0], logits[1, 1] = np.inf, -np.inf
    np.savez(scores, logits=logits)
    record = calibrate(run, labels="observed")
    assert np.isfinite(record["overall"]["map"]["value"])
    logits[2, 2] = np.nan
    np.savez(scores, logits=logits)
    with pytest.raises(UserError, match="NaN"):
        calibrate(run, labels="observed")
