"""`Run` reads each file when it is needed, and explains what is missing or damaged."""

import json
import shutil

import numpy as np
import pytest

from spml.errors import UserError
from spml.runs.run import Run


def message(read) -> str:
    with pytest.raises(UserError) as error:
        read()
    return str(error.value)


def test_the_error_about_a_missing_file_names_the_state_of_the_run(tmp_path):
    gone, run = Run(tmp_path / "gone"), Run(tmp_path)
    assert "gone is not a folder; give the folder of a finished run" in message(lambda: gone.config)
    assert "is not a run (no config.json); give" in message(lambda: run.config)
    assert "is not a run (no result.json); give" in message(run.require_result)
    (tmp_path / "config.json").write_text("{}")
    assert "is not a finished run (no result.json); resume it" in message(run.require_result)
    assert run.exists and not run.finished and run.result is None and run.history == []


def test_read_refuses_a_folder_without_a_run_that_has_begun(tmp_path):
    gone = tmp_path / "gone"
    assert "gone is not a folder; give the folder" in message(lambda: Run.read(gone))
    assert "is not a run (no config.json)" in message(lambda: Run.read(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    unbegun = "neither history.jsonl nor result.json; train it first"
    assert unbegun in message(lambda: Run.read(tmp_path))


def test_a_finished_run_has_all_its_parts(finished, scenes):
    run = Run.read(finished)
    assert run.finished and run.require_result() == run.result
    assert list(run.classes) == list(scenes.classes)
    assert np.array_equal(run.test_truth, scenes.test.labels)
    assert np.array_equal(run.observed.train, scenes.observed.rows(scenes.train_rows))
    assert np.array_equal(run.observed.val, scenes.observed.rows(scenes.val_rows))
    assert run.observed.sha256 == scenes.sha256 and run.observed.num_val == len(scenes.val_rows)
    assert [record["epoch"] for record in run.history] == list(range(len(run.history)))
    for epoch in range(len(run.history)):
        assert run.scores("val", epoch).shape == run.val_truth.shape
    assert run.scored.split == "test" and run.scored.logits.shape == run.test_truth.shape
    assert run.model_info.is_file() and run.card.is_file() and run.model.is_dir()
    assert run.calibration() is None and run.scores("val", 99) is None


def test_a_file_that_is_not_needed_is_not_read(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    for name in ("labels.npz", "observed.npz", "result.json", "history.jsonl"):
        (tmp_path / "run" / name).write_bytes(b"damaged")
    run = Run(tmp_path / "run", remedy="repair it")
    assert run.config["method"] and run.finished and run.scores("test") is not None
    for name in ("val_truth", "observed"):
        assert message(lambda name=name: getattr(run, name)).endswith("; repair it")
    assert "result.json: not JSON" in message(run.require_result)
    assert "history.jsonl, line 1: not JSON" in message(lambda: run.history)


def test_the_later_record_of_an_epoch_counts(tmp_path):
    run = Run(tmp_path)
    lines = ({"epoch": 1, "loss": 2}, {"epoch": 0}, {"epoch": 1, "loss": 1})
    text = "\n\n".join(json.dumps(line) for line in lines)
    (tmp_path / "history.jsonl").write_text(text)
    assert run.history == [{"epoch": 0}, {"epoch": 1, "loss": 1}]
    (tmp_path / "history.jsonl").write_text('{"epoch": true}')
    assert "line 1: 'epoch' must be a whole number" in message(lambda: Run(tmp_path).history)


def test_arrays_that_do_not_fit_are_refused(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    arrays = dict(np.load(folder / "observed.npz"))
    np.savez(folder / "observed.npz", **{**arrays, "observed": arrays["observed"][:, 1:]})
    assert "do not fit" in message(lambda: Run(folder).observed)
    np.savez(folder / "observed.npz", **{**arrays, "val_rows": arrays["val_rows"] + 10**6})
    assert "val_rows name rows that" in message(lambda: Run(folder).observed)
    np.savez(folder / "scores" / "test.npz", logits=np.zeros((1, 1)))
    assert "do not fit the labels" in message(lambda: Run(folder).scored)
