"""The validation items of a run, as calibration reads them."""

import json

import numpy as np
import pytest

from spml.errors import UserError
from spml.use.calibrate.validation import read_validation
from tests.use.conftest import change, observe_only, scores_file


def test_scores_and_labels_are_the_stored_ones(run):
    labels, seen = np.load(run / "labels.npz"), np.load(run / "observed.npz")
    complete, observed = read_validation(run), read_validation(run, "observed")
    assert complete.kind == "complete" and observed.kind == "observed"
    assert np.array_equal(complete.labels, labels["val_truth"])
    assert np.array_equal(observed.labels, seen["observed"][seen["val_rows"]])
    scores = np.load(scores_file(run))["logits"]
    assert np.array_equal(complete.logits, scores) and complete.logits.dtype == np.float64
    assert complete.source == f"scores/{scores_file(run).name} (float16)"


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


def test_the_selection_chooses_the_labels_and_is_required(run):
    config = json.loads((run / "config.json").read_text())
    observe_only(run)
    assert read_validation(run).kind == "observed"
    # the card, written at the end, needs the last three
    for lacking in ("selection", "data", "method", "epochs"):
        rest = {name: config[name] for name in config if name != lacking}
        (run / "config.json").write_text(json.dumps(rest))
        with pytest.raises(UserError, match=f"lacks {lacking}"):
            read_validation(run)
