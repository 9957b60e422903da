"""A recorded figure must match its scores, up to ties caused by float16; others are reported."""

import json
import shutil

import numpy as np
import pytest

from spml.bench.verify import bounds, verify, without_scores
from spml.errors import UserError
from spml.metrics import estimated_map, mean_average_precision


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e5])
def test_the_true_figure_lies_between_the_bounds_of_the_rounded_scores(scale):
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth = rng.integers(-1, 2, (200, 3)).astype(np.int8)
        logits = (scale * rng.normal(size=(200, 3)) + scale * (truth == 1) + 5).astype(np.float32)
        low, high = bounds(np.clip(logits, -65504, 65504).astype(np.float16), truth, "complete")
        assert low - 1e-6 <= 100 * mean_average_precision(logits, truth) <= high + 1e-6
        if scale == 1.0:
            assert high - low < 2


def test_the_bounds_are_reached():
    truth = np.array([[1], [1], [-1], [-1]], np.int8)
    assert bounds(np.zeros((4, 1), np.float16), truth, "complete") == pytest.approx(
        (100 * (1 / 3 + 2 / 4) / 2, 100)
    )


def test_every_figure_of_a_bench_agrees_until_one_is_changed(job, tmp_path):
    runs = job.store.path / "runs"
    checks = list(verify(runs))
    assert len(checks) == 8 and all(check.agrees for check in checks)
    name = checks[0].run
    shutil.copytree(runs / name, tmp_path / name)
    path = tmp_path / name / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "test_map": result["test_map"] + 10}))
    changed = {check.split: check for check in verify(tmp_path)}
    assert (
        changed["val"].agrees and not changed["test"].agrees and "DIFFERS" in str(changed["test"])
    )
    (tmp_path / name / "scores" / "test.npz").unlink()
    assert [check.bounds is None for check in verify(tmp_path)] == [False, True]


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no finished run"):
        list(verify(tmp_path))


def test_a_record_that_contradicts_the_scores_is_reported(job, tmp_path):
    shutil.copytree(job.store.path / "records", tmp_path / "records")
    shutil.copytree(job.store.path / "runs", tmp_path / "runs")
    assert len(list(verify(tmp_path / "runs", tmp_path / "records"))) == 8
    path = min((tmp_path / "records").glob("*.json"))
    record = json.loads(path.read_text())
    record["result"]["test_map"] += 10
    path.write_text(json.dumps(record))
    (wrong,) = [
        check for check in verify(tmp_path / "runs", tmp_path / "records") if not check.agrees
    ]
    assert (wrong.run, wrong.split) == (path.name, "test")
    assert without_scores(tmp_path / "runs", tmp_path / "records") == 0
    shutil.rmtree(tmp_path / "runs" / path.stem)
    assert without_scores(tmp_path / "runs", tmp_path / "records") == 1


def test_a_changed_class_ap_and_a_removed_figure_are_reported(job, tmp_path):
    for part in ("records", "runs"):
        shutil.copytree(job.store.path / part, tmp_path / part)
    path = min((tmp_path / "records").glob("*.json"))
    record = json.loads(path.read_text())
    name = min(record["result"]["per_class_ap"])
    for change in (50.0, None):
        changed = {**record["result"]["per_class_ap"], name: change}
        if change is None:
            del changed[name]
        path.write_text(
            json.dumps({**record, "result": {**record["result"], "per_class_ap": changed}})
        )
        (wrong,) = [
            check for check in verify(tmp_path / "runs", tmp_path / "records") if not check.agrees
        ]
        assert (wrong.run, wrong.split) == (path.name, f"test, {name}") and "DIFFERS" in str(wrong)
    path.write_text(json.dumps({**record, "result": {**record["result"], "test_map": None}}))
    (wrong,) = [
        check for check in verify(tmp_path / "runs", tmp_path / "records") if not check.agrees
    ]
    assert (wrong.run, wrong.split) == (path.name, "test")


def test_changed_resampled_figures_and_counts_are_reported(job, tmp_path):
    for part in ("records", "runs"):
        shutil.copytree(job.store.path / part, tmp_path / part)
    path = min((tmp_path / "records").glob("*.json"))
    record = json.loads(path.read_text())
    maps, counts = record["bootstrap"]["maps"], record["observed_counts"]
    changes = {
        f"test, draw {len(maps) - 1}": {
            "bootstrap": {**record["bootstrap"], "maps": [*maps[:-1], maps[-1] + 1]}
        },
        "test, draw 0": {"bootstrap": {**record["bootstrap"], "maps": [0.0] * len(maps)}},
        "observed, zero": {"observed_counts": [counts[0] + 1, *counts[1:]]},
    }
    for split, change in changes.items():
        path.write_text(json.dumps({**record, **change}))
        (wrong,) = [
            check for check in verify(tmp_path / "runs", tmp_path / "records") if not check.agrees
        ]
        assert (wrong.run, wrong.split) == (path.name, split) and str(wrong).endswith("DIFFERS")
    assert f"{counts[0] + 1}.00 recorded, labels give {counts[0]}.00" in str(wrong)
    path.write_text(json.dumps({**record, "bootstrap": {"seed": 1200}}))
    (wrong,) = [
        check for check in verify(tmp_path / "runs", tmp_path / "records") if not check.agrees
    ]
    assert "images of the bootstrap cannot be None" in str(wrong) and str(wrong).endswith(
        "NOT CHECKED"
    )
    path.write_text(json.dumps(record))
    (tmp_path / "runs" / path.stem / "observed.npz").write_bytes(b"no file of arrays")
    (wrong,) = [
        check for check in verify(tmp_path / "runs", tmp_path / "records") if not check.agrees
    ]
    assert (wrong.run, wrong.split) == (
        path.name,
        "observed",
    ) and "not a readable .npz file" in str(wrong)


def test_unusable_scores_are_reported_and_the_rest_is_checked(job, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(job.store.path / "runs", runs)
    first, second, *_ = sorted(runs.iterdir())
    (first / "scores" / "test.npz").write_bytes(b"nothing")
    np.savez(second / "scores" / "test.npz", logits=np.zeros((1, 2), np.float16))
    checks = list(verify(runs))
    assert len(checks) == 8
    wrong = {check.run: str(check) for check in checks if not check.agrees}
    assert (
        "not a readable .npz file" in wrong[first.name]
        and "do not fit the labels" in wrong[second.name]
    )
    assert len(wrong) == 2 and all(text.endswith("NOT CHECKED") for text in wrong.values())


@pytest.mark.parametrize("part", ["runs", "records"])
@pytest.mark.parametrize(
    "text", ["{", "[]", '{"result": 3}', '{"val_map": "a", "result": {"val_map": "a"}}']
)
def test_an_unreadable_result_is_reported_and_the_rest_is_checked(job, tmp_path, part, text):
    for kind in ("records", "runs"):
        shutil.copytree(job.store.path / kind, tmp_path / kind)
    name = min(path.stem for path in (tmp_path / "records").iterdir())
    file = (
        tmp_path / "runs" / name / "result.json"
        if part == "runs"
        else tmp_path / "records" / f"{name}.json"
    )
    file.write_text(text)
    (wrong, *rest) = verify(tmp_path / "runs", tmp_path / "records")
    assert wrong.run == name and str(file) in str(wrong) and str(wrong).endswith("NOT CHECKED")
    assert not wrong.agrees and len(rest) == 6 and all(check.agrees for check in rest)


def test_observed_labels_are_checked_by_the_estimate_and_unlabelled_splits_are_not(tmp_path):
    rng = np.random.default_rng(0)
    logits, folder = rng.normal(size=(30, 2)).astype(np.float16), tmp_path / "run"
    observed = (rng.random((30, 2)) < 0.3).astype(np.int8)
    (folder / "scores").mkdir(parents=True)
    np.savez(folder / "labels.npz", classes=np.array(["a", "b"]), val_truth=observed)
    for name in ("val-01", "test"):
        np.savez(folder / "scores" / f"{name}.npz", logits=logits)
    figure = 100 * estimated_map(logits, observed)
    result = {"selection": "observed", "best_epoch": 1, "val_map": figure, "test_map": 50.0}
    (folder / "result.json").write_text(json.dumps(result))
    val, test = verify(tmp_path)
    assert (
        val.agrees
        and test.bounds is None
        and str(test).endswith("no labels of test in labels.npz  NOT CHECKED")
    )
    (folder / "scores" / "test.npz").unlink()
    assert str(list(verify(tmp_path))[1]).endswith("recorded, no scores  NOT CHECKED")
    (folder / "labels.npz").unlink()
    assert str(next(verify(tmp_path))).endswith("recorded, no labels.npz  NOT CHECKED")
