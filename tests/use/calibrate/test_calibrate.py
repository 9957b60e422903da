import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from spml.errors import UserError
from spml.metrics import threshold_metrics
from spml.model.store import read_info, write_info
from spml.train import fit
from spml.use.calibrate.calibrate import calibrate, undo
from spml.use.calibrate.fit import Target, thresholds
from spml.use.evaluate import assess
from tests.conftest import edit, spml
from tests.use.conftest import change, scores_file, with_noise, written


def scramble(run):
    """Replace every unobserved label of train and validation by noise."""
    rng = np.random.default_rng(5)
    file = np.load(run / "observed.npz")
    observed = file["observed"][file["val_rows"]]
    noise = np.where(rng.random(observed.shape) < 0.5, 1, -1).astype(np.int8)
    change(run / "labels.npz", val_truth=np.where(observed == 0, noise, observed).astype(np.int8))


@pytest.mark.parametrize(
    "words", [{}, {"method": "isotonic", "aim": "recall=0.8"}, {"positives_per_item": 1.5}]
)
def test_unobserved_labels_change_no_byte(run, words):
    calibrate(run, labels="observed", **words)
    before = written(run)
    undo(run)
    scramble(run)
    calibrate(run, labels="observed", **words)
    assert written(run) == before
    calibrate(run, labels="complete")
    assert written(run) != before


def test_scores_computed_from_the_data_read_no_other_label_either(run, changed):
    shutil.rmtree(run / "scores")
    calibrate(run, labels="observed")
    before = written(run)
    undo(run)
    loaded = changed(with_noise)
    calibrate(run, labels="observed")
    assert written(run) == before and loaded


def test_calibrating_twice_is_idempotent_and_undo_restores_the_original(run):
    start = (run / "best" / "model.json").read_bytes()
    calibrate(run, labels="observed")
    first = written(run)
    calibrate(run, aim="precision=0.8", method="isotonic")
    assert written(run) != first
    calibrate(run, labels="observed")
    assert written(run) == first
    undo(run)
    assert (run / "best" / "model.json").read_bytes() == start
    assert not (run / "calibration.json").exists()
    with pytest.raises(UserError, match="nothing to undo"):
        undo(run)


def test_the_card_describes_the_calibration_and_its_undoing(run):
    card = run / "best" / "README.md"
    before = card.read_text()
    calibrate(run, labels="observed", aim="recall=0.8")
    after, info = card.read_text(), read_info(run)
    assert "Probabilities are calibrated" in after and "aim recall=0.8, labels observed" in after
    assert all(f"| {threshold:.4g} |" in after for threshold in info.thresholds)
    undo(run)
    assert card.read_text() == before


def test_a_retrained_run_is_not_calibrated(run, scenes, quick):
    calibrate(run)
    fit(scenes, replace(quick, epochs=1), run, overwrite=True, quiet=True)
    assert not (run / "calibration.json").exists() and read_info(run).thresholds == [0.5] * 10


def test_an_unreadable_description_is_not_written(run):
    before = (run / "best" / "model.json").read_bytes()
    with pytest.raises(ValueError, match="must be probabilities"):
        write_info(run, replace(read_info(run), thresholds=[2.0] * 10))
    assert (run / "best" / "model.json").read_bytes() == before


def test_undo_restores_thresholds_set_by_hand_before_calibration(run):
    calibrate(run)
    edit(run / "best" / "model.json", thresholds=[0.25] * 10)
    calibrate(run)
    undo(run)
    assert read_info(run).thresholds == [0.25] * 10


@pytest.mark.parametrize("method", ["temperature", "isotonic", "none"])
@pytest.mark.parametrize("labels", ["complete", "observed"])
def test_figures_equal_those_of_the_stored_model(run, method, labels):
    record = calibrate(run, labels=labels, method=method)
    info = read_info(run)
    assert (info.calibration is None) == (method == "none")
    assert all(0 < t < 1 for t in info.thresholds)
    if labels == "complete":
        metrics = assess(run, "val")["metrics"]
        value = 100 * record["overall"]["macro_f1"]["value"]
        assert metrics["macro_f1"] == pytest.approx(value, abs=1.5)  # half precision can change it
    before, now = record["overall_before"]["macro_f1"], record["overall"]["macro_f1"]
    assert now["value"] >= before and now["low"] <= now["value"] <= now["high"]
    curves = record["reliability"]
    assert method == "none" or curves["calibrated"]["error"] < curves["logits"]["error"]
    assert ("drawn" in curves) == (labels == "observed")
    row = record["classes"][0]
    assert 0 < row["prior"]["low"] <= row["prior"]["value"] <= row["prior"]["high"] < 1
    assert 0 < row["propensity"] <= 1


def test_thresholds_meet_the_aims(run):
    high = calibrate(run, labels="complete", aim="precision=0.7")
    full = calibrate(run, labels="complete", aim="recall=0.95")
    assert high["overall"]["macro_recall"]["value"] < full["overall"]["macro_recall"]["value"]
    assert full["overall"]["micro_recall"]["value"] > 0.85
    assert full["aim"] == "recall=0.95"


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_thresholds_meet_the_aim_by_the_stored_probabilities(run, method):
    calibrate(run, labels="complete", aim="precision=0.3", method=method)
    info = read_info(run)
    logits = torch.from_numpy(np.load(scores_file(run))["logits"]).float()
    p = info.calibrate()(logits).double().sigmoid().numpy()
    assert info.thresholds == pytest.approx(thresholds(p, Target("precision", 0.3)), abs=1e-3)


def test_thresholds_alone_tag_as_with_calibrated_probabilities(run):
    tags = [calibrate(run, labels="complete", method=method) for method in ("temperature", "none")]
    for one, other in zip(*(record["classes"] for record in tags), strict=True):
        assert one["precision"]["value"] == other["precision"]["value"]
        assert one["recall"] == other["recall"]


def test_the_command_shows_classes_ranges_and_where_it_was_written(run, capsys):
    assert spml(f"calibrate {run} --labels observed") == 0
    out = capsys.readouterr().out
    assert "no other label was read" in out and "nine" in out and "macro-F1" in out and "±" in out
    assert "give --positives-per-item if you know it" in out
    assert spml(f"calibrate {run} --labels observed --positives-per-item 1.5") == 0
    assert "(as given)" in (out := capsys.readouterr().out) and "if you know them" not in out
    assert spml(f"calibrate {run} --undo") == 0


def test_features_are_calibrated_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.random((200, 3)) < [0.6, 0.4, 0.3]
    y[~y.any(axis=1), 0] = True
    x = (y @ rng.normal(0, 2, (3, 5)) + rng.normal(0, 1, (200, 5))).astype(np.float32)
    labels = np.where(y, 1, -1).astype(np.int8)
    np.savez("x.npz", x=x, labels=labels, classes=np.array(["a", "b", "c"]))
    assert spml("train x.npz --labels complete --epochs 2 --quiet --out run") == 0
    assert spml("calibrate run --labels observed") == 0
    assert torch.isfinite(read_info(tmp_path / "run").calibrate()(torch.zeros(1, 3))).all()


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
