import shutil

import pytest

from spml.files import read_json
from spml.train import fit
from tests.conftest import failing, history, refused, same

pytest.importorskip("tensorboard")


def scalars(run):
    """Every (name, epoch) with its values, over all event files."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    values_of = {}
    for path in sorted((run / "tensorboard").iterdir()):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                values_of.setdefault((value.tag, event.step), []).append(value.tensor.float_val[0])
    return values_of


def expected(run):
    lines = history(run)
    result = read_json(run / "result.json")
    known = {
        (name, line["epoch"]): value
        for line in lines
        for name, value in line.items()
        if name != "epoch"
    }
    at = result["best_epoch"]
    tested = {(f"test_ap/{name}", at): value for name, value in result["per_class_ap"].items()}
    return {**known, **tested, ("test_map", at): result["test_map"]}


def check(run):
    values_of = scalars(run)
    assert all(len(values) == 1 for values in values_of.values())
    written = {key: values[0] for key, values in values_of.items()}
    assert written == pytest.approx(expected(run), rel=1e-6)


def test_every_number_of_the_history_is_written_once(scenes, quick, finished, tmp_path):
    fit(scenes, quick, tmp_path / "run", quiet=True, tensorboard=True)
    check(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "tensorboard")
    same(tmp_path / "run", finished)


def test_a_resumed_run_writes_nothing_twice(scenes, quick, train, tmp_path):
    with failing(3):
        fit(scenes, quick, tmp_path / "run", quiet=True, tensorboard=True)
    assert ("loss", 2) in scalars(tmp_path / "run")
    fit(scenes, quick, tmp_path / "run", quiet=True, tensorboard=True, resume=True)
    check(tmp_path / "run")
    train(epochs=1, overwrite=True)
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_without_the_package_the_error_is_one_line_and_nothing_is_written(
    scenes, quick, tmp_path, monkeypatch
):
    monkeypatch.setattr("spml.train.display.find_spec", lambda name: None)
    with refused(r"pip install -e '.\[tensorboard\]'"):
        fit(scenes, quick, tmp_path / "run", quiet=True, tensorboard=True)
    assert not (tmp_path / "run").exists()
