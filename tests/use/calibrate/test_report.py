"""calibration.json, compared with the labels and scores of the run."""

import numpy as np
import pytest

from spml.metrics import threshold_metrics
from spml.model.store import read_info
from spml.use.calibrate.calibrate import calibrate
from tests.use.conftest import scores_file


def test_classes_of_fewer_than_five_known_positives_are_named(run):
    with np.load(run / "observed.npz") as file:
        arrays = dict(file)
    observed, rows = arrays["observed"], arrays["val_rows"]
    observed[rows[:, None], [3, 4]] = 0
    observed[rows[:4], 3] = observed[rows[:5], 4] = 1
    np.savez(run / "observed.npz", **arrays)
    record = calibrate(run, labels="observed", positives_per_item=1.5)
    names, seen = [one["name"] for one in record["classes"]], (observed[rows] == 1).sum(axis=0)
    assert names == read_info(run).classes and seen[3:5].tolist() == [4, 5]
    assert [one["known_positives"] for one in record["classes"]] == seen.tolist()
    assert record["few_positives"] == [names[i] for i in np.flatnonzero(seen < 5)]
    assert record["positives_per_item_given"] == 1.5
    for one, count in zip(record["classes"], seen, strict=True):
        share = count / record["items"] / one["prior"]["value"]
        assert one["propensity"] == pytest.approx(min(share, 1))
        for figure in ("threshold", "precision", "recall", "f1", "ap"):
            assert one[figure]["low"] <= one[figure]["high"]


def test_classes_below_the_aim_are_listed_separately_from_untagged_ones(run):
    logits = np.load(scores_file(run))["logits"]
    logits[:, 3] = 0  # uninformative, so that no item reaches more than the share of positives
    np.savez(scores_file(run), logits=logits)
    record = calibrate(run, labels="complete", aim="precision=0.9")
    by_name = {one["name"]: one for one in record["classes"]}
    assert record["classes"][3]["name"] in record["untagged"]
    for name in record["untagged"]:
        assert by_name[name]["recall"]["value"] == 0
        assert by_name[name]["threshold"]["value"] == pytest.approx(0.9)
    short = [name for name, one in by_name.items() if one["precision"]["value"] < 0.9]
    assert record["below_aim"] == [name for name in short if name not in record["untagged"]]
    record = calibrate(run, labels="complete", aim="recall=0.9")
    assert record["untagged"] == []
    short = [one["name"] for one in record["classes"] if one["recall"]["value"] < 0.9]
    assert record["below_aim"] == short
    record = calibrate(run, labels="complete")
    assert record["untagged"] == [] and record["below_aim"] == []


def test_figures_before_calibration_equal_those_of_the_uncalibrated_model(run):
    labels = np.load(run / "labels.npz")["val_truth"]
    logits = np.load(scores_file(run))["logits"]
    record = calibrate(run, labels="complete")
    before = threshold_metrics(logits, labels, threshold=0.5)
    assert record["items"] == len(labels) and record["items_left_out"] == 0
    assert record["positives_per_item_given"] is None and "drawn" not in record["reliability"]
    before_overall = record["overall_before"]
    assert before_overall["macro_f1"] == pytest.approx(before.macro_f1, abs=1e-6)
    assert record["overall"]["macro_f1"]["value"] >= before_overall["macro_f1"] - 1e-9
