"""A recorded figure is that of its scores, up to the ties that float16 makes, or it is found out."""

import json
import shutil

import numpy as np
import pytest

from spml.bench.verify import bounds, verify
from spml.errors import UserError
from spml.metrics import mean_average_precision


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
    assert bounds(np.zeros((4, 1), np.float16), truth, "complete") == pytest.approx((100 * (1 / 3 + 2 / 4) / 2, 100))


def test_every_figure_of_a_bench_agrees_until_one_is_changed(job, tmp_path):
    runs = job.shelf.path / "runs"
    checks = list(verify(runs))
    assert len(checks) == 8 and all(check.agrees for check in checks)
    name = checks[0].run
    shutil.copytree(runs / name, tmp_path / name)
    path = tmp_path / name / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "test_map": result["test_map"] + 10}))
    changed = {check.split: check for check in verify(tmp_path)}
    assert changed["val"].agrees and not changed["test"].agrees and "DIFFERS" in str(changed["test"])
    (tmp_path / name / "scores" / "test.npz").unlink()
    assert [check.bounds is None for check in verify(tmp_path)] == [False, True]


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no finished run"):
        list(verify(tmp_path))
