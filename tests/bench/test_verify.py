"""A recorded figure must match its scores, up to ties caused by float16; others are reported."""

import json
import shutil

import numpy as np
import pytest

from spml.bench.verify import bounds, verify, without_scores
from spml.metrics import mean_average_precision, selection_score
from tests.conftest import edit, stored


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
    expected = pytest.approx((100 * (1 / 3 + 2 / 4) / 2, 100))
    assert bounds(np.zeros((4, 1), np.float16), truth, "complete") == expected


@pytest.fixture
def bench(job, tmp_path):
    """A copy of a finished bench, to be spoiled."""
    for part in ("records", "runs"):
        shutil.copytree(job.store.path / part, tmp_path / part)
    return tmp_path


@pytest.fixture
def record(bench):
    return min((bench / "records").glob("*.json"))


def checks(bench):
    return list(verify(bench / "runs", bench / "records"))


def disagreement(bench):
    (wrong,) = [check for check in checks(bench) if not check.agrees]
    return wrong


def test_every_figure_of_a_bench_agrees_until_one_is_changed(bench):
    assert len(checks(bench)) == 8 and all(check.agrees for check in checks(bench))
    run = min((bench / "runs").iterdir())
    result = stored(run / "result.json")
    edit(run / "result.json", test_map=result["test_map"] + 10)
    alone = {check.split: check for check in verify(bench / "runs") if check.run == run.name}
    assert alone["val"].agrees and not alone["test"].agrees and "DIFFERS" in str(alone["test"])
    (run / "scores" / "test.npz").unlink()
    assert [check.bounds is None for check in verify(bench / "runs")][:2] == [False, True]


def test_records_without_run_folders_are_counted(bench, record):
    assert without_scores(bench / "runs", bench / "records") == 0
    shutil.rmtree(bench / "runs" / record.stem)
    assert without_scores(bench / "runs", bench / "records") == 1


@pytest.mark.parametrize(
    ("part", "name", "change", "split"),
    [
        ("result", "test_map", lambda figure: figure + 10, "test"),
        ("result", "test_map", lambda figure: None, "test"),
        ("result", "per_class_ap", lambda aps: {**aps, "eight": 50.0}, "test, eight"),
        ("result", "per_class_ap", lambda aps: aps.pop("eight") and aps, "test, eight"),
        ("bootstrap", "maps", lambda maps: [*maps[:-1], maps[-1] + 1], "test, draw 999"),
        ("bootstrap", "maps", lambda maps: [0.0] * len(maps), "test, draw 0"),
    ],
    ids=["map", "no map", "ap", "no ap", "last draw", "draws"],
)
def test_a_record_that_contradicts_the_scores_is_reported(bench, record, part, name, change, split):
    content = stored(record)
    content[part][name] = change(content[part][name])
    record.write_text(json.dumps(content))
    wrong = disagreement(bench)
    assert (wrong.run, wrong.split) == (record.name, split) and str(wrong).endswith("DIFFERS")


def test_a_record_that_contradicts_the_labels_is_reported(bench, record):
    content = stored(record)
    content["observed_counts"][0] += 1
    record.write_text(json.dumps(content))
    count = content["observed_counts"][0]
    shown = f"observed, zero  {count}.00 recorded, labels give {count - 1}.00 to {count - 1}.00"
    assert str(disagreement(bench)) == f"{record.name}  {shown}  DIFFERS"


def test_unusable_scores_are_reported_and_the_rest_is_checked(bench):
    first, second, *_ = sorted((bench / "runs").iterdir())
    (first / "scores" / "test.npz").write_bytes(b"nothing")
    np.savez(second / "scores" / "test.npz", logits=np.zeros((1, 2), np.float16))
    assert len(checks(bench)) == 8
    wrong = {check.run: str(check) for check in checks(bench) if not check.agrees}
    assert set(wrong) == {first.name, second.name}
    assert "not a readable .npz file" in wrong[first.name]
    assert "do not fit the labels" in wrong[second.name]
    assert all(text.endswith("NOT CHECKED") for text in wrong.values())


def test_unreadable_observed_labels_are_reported(bench, record):
    (bench / "runs" / record.stem / "observed.npz").write_bytes(b"no file of arrays")
    wrong = disagreement(bench)
    assert (wrong.run, wrong.split) == (record.name, "observed")
    assert "not a readable .npz file" in str(wrong)


@pytest.mark.parametrize("part", ["runs", "records"])
@pytest.mark.parametrize(
    "text", ["{", "[]", '{"result": 3}', '{"val_map": "a", "result": {"val_map": "a"}}']
)
def test_an_unreadable_result_is_reported_and_the_rest_is_checked(bench, record, part, text):
    name = record.stem
    file = bench / "runs" / name / "result.json" if part == "runs" else record
    file.write_text(text)
    wrong, *rest = checks(bench)
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
    figure = 100 * selection_score(logits, observed)
    result = {"selection": "observed", "best_epoch": 1, "val_map": figure, "test_map": 50.0}
    (folder / "result.json").write_text(json.dumps(result))
    val, test = verify(tmp_path)
    assert val.agrees and test.bounds is None
    assert str(test).endswith("no labels of test in labels.npz  NOT CHECKED")
    (folder / "scores" / "test.npz").unlink()
    assert str(list(verify(tmp_path))[1]).endswith("recorded, no scores  NOT CHECKED")
    (folder / "labels.npz").unlink()
    assert str(next(verify(tmp_path))).endswith("recorded, no labels.npz  NOT CHECKED")
