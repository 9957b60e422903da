"""The validation items of a run, as calibration reads them."""

import json

import numpy as np
import pytest

from spml.errors import UserError
from spml.model.store import read_info
from spml.use.calibrate.validation import read_validation


def change(path, **arrays):
    with np.load(path) as file:
        stored = dict(file)
    np.savez(path, **stored | arrays)


def test_scores_and_labels_are_the_stored_ones(run):
    labels, seen = np.load(run / "labels.npz"), np.load(run / "observed.npz")
    epoch = read_info(run).training["epoch"]
    complete, observed = read_validation(run), read_validation(run, "observed")
    assert complete.kind == "complete" and observed.kind == "observed"
    assert np.array_equal(complete.labels, labels["val_truth"])
    assert np.array_equal(observed.labels, seen["observed"][seen["val_rows"]])
    scores = np.load(run / "scores" / f"val-{epoch:02d}.npz")["logits"]
    assert np.array_equal(complete.logits, scores) and complete.logits.dtype == np.float64
    assert complete.source == f"scores/val-{epoch:02d}.npz (float16)"


def test_labels_that_do_not_fit_or_are_not_all_known_are_refused(run):
    truth = np.load(run / "labels.npz")["val_truth"]
    unknown = truth.copy()
    unknown[3, 2] = 0
    for wrong in (unknown, truth[:-1]):
        change(run / "labels.npz", val_truth=wrong)
        with pytest.raises(UserError, match="labels that are not known; give --labels observed"):
            read_validation(run, "complete")
        assert len(read_validation(run, "observed").labels) == len(truth)
    change(run / "labels.npz", val_truth=truth, classes=np.array([f"c{i}" for i in range(10)]))
    with pytest.raises(UserError, match="mixes two runs"):
        read_validation(run)


def test_observed_labels_of_other_classes_are_refused(run):
    change(run / "observed.npz", observed=np.load(run / "observed.npz")["observed"][:, :9])
    with pytest.raises(
        UserError, match=r"observed.npz: labels of shape \(\d+, 9\) do not fit 10 classes"
    ):
        read_validation(run)


def test_the_selection_chooses_the_labels_and_is_required(run):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"selection": "observed"}))
    assert read_validation(run).kind == "observed"
    for lacking in (
        "selection",
        "data",
        "method",
        "epochs",
    ):  # the card, written at the end, needs the last three
        (run / "config.json").write_text(
            json.dumps({name: config[name] for name in config if name != lacking})
        )
        with pytest.raises(UserError, match=f"lacks {lacking}"):
            read_validation(run)
