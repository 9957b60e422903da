"""More sections of one run's page: calibration, thresholds, missed classes, pictures, suspects."""

import base64
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from spml.cli import main
from spml.errors import UserError
from spml.metrics import calibration_error, threshold_metrics
from spml.model.store import read_info
from spml.report.examples import choose, surprise
from spml.report.measures import GRID, sweep
from spml.runs.run import Run
from spml.use.calibrate.calibrate import calibrate
from tests.conftest import edit

from .conftest import images, page, section

RATIOS = ("precision", "recall", "f1")
METRICS = ("CP", "CR", "macro_f1", "OP", "OR", "OF1")  # columns of the thresholds


def observed_alone(run):
    """Remove everything but observed labels from a run."""
    labels, seen = dict(np.load(run / "labels.npz")), np.load(run / "observed.npz")
    labels.pop("test_truth", None)
    labels["val_truth"] = seen["observed"][seen["val_rows"]]
    np.savez(run / "labels.npz", **labels)
    edit(run / "config.json", selection="observed")
    edit(run / "result.json", selection="observed", test_map=None, per_class_ap=None)


def scores_of(run):
    return (
        np.load(run / "labels.npz")["test_truth"],
        np.load(run / "scores" / "test.npz")["logits"],
    )


def test_without_calibration_the_true_curve_and_how_to_calibrate(run):
    seen = section(page(run), "Calibration")
    truth, logits = scores_of(run)
    error = 100 * calibration_error(logits, truth)
    assert f"not calibrated: spml calibrate {run}" in seen
    assert f"Calibration error, as the network gives them {error:.2f} %" in seen
    assert "complete labels of the test set" in seen and "calibrated: error" not in seen


def test_after_calibration_both_curves_on_complete_labels(run):
    calibrate(run, labels="observed", aim="recall=0.8")
    document = page(run)
    seen = section(document, "Calibration")
    truth, logits = scores_of(run)
    calibrated = read_info(run).calibrate()(torch.from_numpy(logits.astype(np.float32))).numpy()
    for name, scores in (("as the network gives them", logits), ("calibrated", calibrated)):
        assert f"Calibration error, {name} {100 * calibration_error(scores, truth):.2f} %" in seen
    assert "labels: observed, no other was read" in seen and "Thresholds are for recall=0.8" in seen
    assert "Calibrated by " in seen
    assert f"truly {(truth == 1).sum() / len(truth):.2f} in test" in seen
    info, cuts = read_info(run), section(document, "Thresholds")
    metrics = threshold_metrics(calibrated, truth, threshold=np.array(info.thresholds))
    row = [getattr(metrics, name) for name in METRICS]
    assert "stored, one per class " + " ".join(f"{100 * value:.1f}" for value in row) in cuts
    assert all(f" {threshold:.3f} " in cuts for threshold in info.thresholds)


def test_figures_from_observed_labels_are_called_estimates(run):
    observed_alone(run)
    document = page(run)
    assert "not calibrated: spml calibrate" in section(document, "Calibration")
    assert "do not determine precision" in section(document, "Thresholds")
    record = calibrate(run)
    document = page(run)
    seen = section(document, "Calibration")
    assert "An estimate: only observed labels" in seen and "complete labels" not in seen
    for name, key in (("as the network gives them", "logits"), ("calibrated", "calibrated")):
        assert (
            f"Calibration error, {name} {100 * record['reliability'][key]['error']:.2f} %" in seen
        )
    cuts = section(document, "Thresholds")
    assert "Estimates: the labels of these validation items are not all known" in cuts
    kinds = [f"{mean}_{name}" for mean in ("macro", "micro") for name in RATIOS]
    figures = [f"{100 * record['overall'][kind]['value']:.1f}" for kind in kinds]
    assert f"stored, one per class {' '.join(figures)}" in cuts  # those of spml calibrate
    one = record["classes"][0]["precision"]
    assert f"{100 * one['value']:.0f} ({100 * one['low']:.0f} to {100 * one['high']:.0f})" in cuts
    assert "known positives of the validation set" in section(document, "Most missed")


def test_classes_that_miss_the_aim_of_calibration_are_named(run):
    observed_alone(run)
    record = calibrate(run)
    assert "sure enough" not in page(run) and "Short of the aim" not in page(run)
    first, second, *_ = (one["name"] for one in record["classes"])
    edit(run / "calibration.json", untagged=[first], below_aim=[second])
    document = page(run)
    seen = section(document, "Calibration")
    assert f"no validation item is sure enough for the aim {first}" in seen
    assert f"Short of the aim on the validation items {second}" in seen
    threshold = record["classes"][0]["threshold"]["value"]
    assert f"{first} {threshold:.3f} –" in section(document, "Thresholds")


def test_a_calibration_record_of_other_thresholds_is_ignored(run):
    calibrate(run)
    edit(run / "best" / "model.json", thresholds=[0.3] * 10)
    assert "not by spml calibrate" in section(page(run), "Calibration")


def test_a_model_of_other_classes_is_refused(run):
    edit(run / "best" / "model.json", classes=[f"c{i}" for i in range(10)])
    with pytest.raises(UserError, match="mixes two runs"):
        page(run)


def test_the_sweep_equals_the_threshold_metrics():
    rng = np.random.default_rng(0)
    truth = np.where(rng.random((300, 4)) < 0.3, 1, -1).astype(np.int8)
    logits = rng.normal(size=(300, 4)) + truth
    counts = sweep(logits, (truth == 1).astype(float))
    for place in (0, 20, 49, 98):
        metrics = threshold_metrics(logits, truth, threshold=GRID[place])
        figures = [part[place] for part in (*counts.macro(), *counts.micro())]
        assert figures == pytest.approx([getattr(metrics, name) for name in METRICS])


def test_most_missed_counts_positives_and_the_tags_given_instead(make_run):
    run = make_run(classes=("cat", "dog", "owl"))
    truth = np.full((6, 3), -1, np.int8)
    truth[:4, 0], truth[3, 1], truth[4:, 2] = 1, 1, 1
    logits = np.full((6, 3), -3, np.float16)
    logits[0, 0], logits[1:3, 1], logits[3, 1], logits[4:, 2] = 3, 3, 3, 3
    labels = dict(np.load(run / "labels.npz")) | {"test_truth": truth}
    np.savez(run / "labels.npz", **labels)
    np.savez(run / "scores" / "test.npz", logits=logits)
    seen = section(page(run), "Most missed")
    assert "3 of 7 positives of the test set get no tag" in seen
    # in the fourth item dog is right, so it replaces nothing
    assert "cat 3 4 75.0 dog (2) 0" in seen
    assert "owl" not in seen
    np.savez(run / "scores" / "test.npz", logits=np.full((6, 3), 9, np.float16))
    assert "Every one of 7 positives" in section(page(run), "Most missed")


def test_pictures_are_embedded_in_the_page(run, scenes):
    from PIL import Image

    document = page(run)
    seen, shown_images = section(document, "Pictures"), images(document)
    suspected = len(re.findall(r'class="ask"', document))
    assert len(shown_images) == 8 + suspected
    assert [seen.count(f"{kind} row") for kind in ("best", "typical", "worst")] == [2, 2, 4]
    for uri in shown_images:
        picture = Image.open(
            io.BytesIO(base64.b64decode(uri.removeprefix("data:image/jpeg;base64,")))
        )
        assert picture.format == "JPEG" and picture.size == (120, 120)  # 24 px, five times as large
    row = int(re.findall(r"worst row (\d+)", seen)[0])
    names = [scenes.classes[c] for c in np.flatnonzero(scenes.test.labels[row] == 1)]
    assert f"true: {', '.join(names)}" in seen
    assert len(document) < 500_000
    assert page(run) == document
    assert page(run, data=scenes) == document  # loaded data equal the data read again
    assert len(images(page(run, pictures=3))) == 3 + suspected
    assert main(["report", str(run), "--pictures", "0"]) == 0
    bare = (run / "report.html").read_text(encoding="utf-8")
    assert not images(bare) and "<h2>Pictures" not in bare and "Labels that may be missing" in bare


def test_missing_or_changed_pictures_are_reported_in_one_line(run, scenes_file, tmp_path):
    moved = tmp_path / "moved.npz"
    edit(run / "config.json", data=str(moved))
    document = page(run)
    assert f"The pictures cannot be read again: {moved}: no such file" in section(
        document, "Pictures"
    )
    assert not images(document) and "row" in section(document, "Labels that may be missing")
    arrays = dict(np.load(scenes_file))
    items = np.array([f"picture {i}" for i in range(len(arrays["x"]))])[::-1]
    # other labels, or other items with the same labels
    for other in ({"labels": arrays["labels"][::-1]}, {"items": items}):
        np.savez(moved, **arrays | other)
        document = page(run)
        assert "The data have changed since training" in section(document, "Pictures")
        assert not images(document)


def test_a_table_of_pictures(pictures, tmp_path, monkeypatch):
    """Observed labels alone; one file is broken and one class has an awkward name."""
    monkeypatch.chdir(tmp_path)
    pictures.write_text(pictures.read_text().replace("blue", '"b<i>lue"'))
    words = "--method an --backbone tiny --weights none --size 16 --epochs 1 --quiet --out run"
    assert main(["train", "photos.csv", *words.split(), "--accelerator", "cpu"]) == 0
    document = Path("run/report.html").read_text(encoding="utf-8")  # as training leaves it
    seen = section(document, "Pictures")
    assert "<i>" not in document and "known:" in seen and "true:" not in seen
    assert images(document) and "Not every picture" not in document
    broken, other, *_ = dict.fromkeys(re.findall(r'title="(photos/[^"]*)"', document))
    assert Path(broken).name in seen
    Path(broken).write_bytes(b"no picture")
    document = page(Path("run"))
    assert f"Not every picture could be read: {broken}" in section(document, "Pictures")
    Path(other).write_bytes(b"no picture")
    assert re.search(r", and \d+ more\.", section(page(Path("run")), "Pictures"))
    shutil.rmtree("photos")
    document = page(Path("run"))
    assert not images(document) and "photos" in section(document, "Pictures")


def test_feature_vectors_have_no_pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = (rng.random((40, 3)) < 0.4).astype(np.int8)
    labels[np.arange(40), rng.integers(0, 3, 40)] = 1
    np.savez(
        "data.npz", x=rng.normal(size=(40, 4)), labels=labels, classes=np.array(["a", "b", "c"])
    )
    words = "--method an --epochs 1 --lr 0.01 --quiet --out run --accelerator cpu"
    assert main(["train", "data.npz", *words.split()]) == 0
    document = page(Path("run"))
    assert "The items are feature vectors" in section(document, "Pictures") and not images(document)
    assert "validation item label probability observed" in section(
        document, "Labels that may be missing"
    )


def test_examples_are_chosen_by_fit_and_differ_in_labels():
    truth = np.array([[1, -1]] * 6 + [[-1, 1]] * 5 + [[-1, -1]], np.int8)
    logits = np.where(truth == 1, 1.0, -1.0) * np.linspace(6, -5, 12)[:, None]
    chosen = choose(surprise(logits, truth), truth, 8)
    assert [kind for kind, _ in chosen] == ["best"] * 2 + ["typical"] * 2 + ["worst"] * 4
    assert len({row for _, row in chosen}) == 8
    # the second best has other labels
    assert [row for kind, row in chosen if kind == "best"] == [0, 6]
    # the last has no positive to judge by
    assert next(row for kind, row in chosen if kind == "worst") == 10
    assert surprise(np.zeros((1, 2)), np.array([[1, 0]], np.int8)) == pytest.approx(np.log(2))
    assert np.isnan(surprise(np.zeros((1, 2)), np.zeros((1, 2), np.int8))).all()
    assert len(choose(surprise(logits[:3], truth[:3]), truth[:3], 8)) == 3


def test_suspects_equal_the_suggestions_of_review(run):
    from spml.use.review.ranking import fit_scale, likeliest

    document = page(run)
    seen = section(document, "Labels that may be missing")
    stored, best = Run.read(run), json.loads((run / "result.json").read_text())["best_epoch"]
    assert stored.observed is not None and stored.val_truth is not None
    logits = np.load(run / "scores" / f"val-{best:02d}.npz")["logits"].astype(np.float32)
    observed = stored.observed.val
    rows, columns = likeliest(fit_scale(logits, observed), logits, observed, 12, per_class=3)
    for row, column in zip(rows, columns, strict=True):
        assert f"+ {stored.classes[column]} " in seen and f"row {row}" in seen
    there = int((stored.val_truth[rows, columns] == 1).sum())
    assert f"By the complete labels, {there} of {len(rows)} are there" in seen
    assert f"spml review {run}" in seen


def test_suspects_read_only_observed_labels(run):
    observed_alone(run)
    labels = dict(np.load(run / "labels.npz"))
    before = section(page(run), "Labels that may be missing")
    assert "By the complete labels" not in before
    np.savez(run / "labels.npz", **labels | {"val_truth": np.ones_like(labels["val_truth"])})
    assert section(page(run), "Labels that may be missing") == before
