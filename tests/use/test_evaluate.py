"""Evaluation of a finished run, and the data that it was trained on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spml.errors import UserError
from spml.model.store import read_info
from spml.use.calibrate.calibrate import calibrate
from spml.use.evaluate import assess, run_data, run_split
from tests.conftest import TINY, edit, spml
from tests.use.conftest import NAMES, observe_only, with_noise


def test_evaluation_repeats_the_runs_own_figures(run):
    result = json.loads((run / "result.json").read_text())
    before = (run / "result.json").read_bytes()
    test, val = assess(run, "test"), assess(run, "val")
    assert test["metrics"]["map"] == pytest.approx(result["test_map"], abs=1e-9)
    assert val["metrics"]["map"] == pytest.approx(result["val_map"], abs=1e-9)
    assert (run / "result.json").read_bytes() == before
    assert json.loads((run / "eval-test.json").read_text()) == test


def test_a_split_without_rows_is_refused(scenes):
    for change in ({"test": None}, {"val_rows": scenes.val_rows[:0]}):
        split = "test" if "test" in change else "val"
        with pytest.raises(UserError, match=f"has no (rows of split )?{split}"):
            run_split(replace(scenes, **change), split, "observed")


def test_a_completely_labelled_test_split_of_user_data_has_all_metrics(
    tmp_path, pictures, monkeypatch, capsys
):
    monkeypatch.chdir(pictures.parent)
    wide = ["image,red,green,blue,split"]
    for line in pictures.read_text().splitlines()[1:]:
        image, label, split = line.split(",")
        absent = "" if split == "train" else "-1"
        cells = ["1" if name == label else absent for name in NAMES]
        wide.append(",".join([image, *cells, split]))
    Path("wide.csv").write_text("\n".join(wide) + "\n")
    assert spml(f"train wide.csv {TINY} --out run") == 0
    result = json.loads(Path("run/result.json").read_text())
    assert assess(Path("run"), "test")["metrics"]["map"] == pytest.approx(result["test_map"])


def test_classes_that_differ_from_the_models_are_reported():
    config = {"data": "digits", "labels": "complete", "selection": "observed"}
    config |= {"observe_seed": 0, "split_seed": 0}
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    other = "has 10 classes, the model 10, such as 'zero', which the model does not have; put back"
    for classes, message in (
        (["nought", *names[1:]], other),
        ([*names, "ten"], "has 10 classes, the model 11; put back"),
        (names[::-1], "has the model's classes in another order; put back"),
    ):
        with pytest.raises(UserError, match=f"digits {message}"):
            run_data(config, classes, None)


def test_estimates_read_no_other_label(run, changed):
    complete = assess(run, "val")
    observe_only(run)
    before = assess(run, "val"), (run / "eval-val.json").read_bytes()
    loaded = changed(with_noise)
    assert (assess(run, "val"), (run / "eval-val.json").read_bytes()) == before and loaded
    edit(run / "config.json", selection="complete")
    assert assess(run, "val") != complete  # the noise did arrive


def test_eval_prints_estimates_with_ranges(run, monkeypatch, capsys):
    observe_only(run)
    evaluation = assess(run, "val")
    estimate = evaluation["estimates"]["map"]
    assert evaluation["labels"] == "observed"
    assert estimate["low"] <= estimate["value"] <= estimate["high"] <= 100
    names = {"macro_f1", "micro_precision", "micro_recall", "positives_per_item"}
    assert names <= set(evaluation["estimates"])
    assert spml(f"eval {run} --split val") == 0
    assert f"{estimate['low']:.4f} to {estimate['high']:.4f}" in capsys.readouterr().out
    items = evaluation["items"]
    monkeypatch.setattr("spml.use.evaluate.FEWEST_ITEMS", items)
    assert "estimates" in assess(run, "val")
    monkeypatch.setattr("spml.use.evaluate.FEWEST_ITEMS", items + 1)
    assert "estimates" not in assess(run, "val")  # ranges of so few items would be far too small
    assert spml(f"eval {run} --split val") == 0
    message = f"{items} items have a positive, and a range needs {items + 1}"
    assert message in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr("spml.use.evaluate.MOST_ESTIMATED", 0)
    assert "estimates" not in assess(run, "val")


def test_evaluation_uses_the_calibrated_probabilities(run):
    calibrate(run, method="temperature")
    metrics = assess(run, "test")["metrics"]
    info = read_info(run)
    shifted = [[x, (np.array(y) + 50).tolist()] for x, y in info.calibration]
    edit(run / "best" / "model.json", calibration=shifted)
    other = assess(run, "test")["metrics"]
    assert other["CR"] == 100
    assert other["map"] == metrics["map"]
    assert other["calibration_error"] > metrics["calibration_error"]
