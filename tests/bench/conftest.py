from functools import partial

import pytest

from spml.bench.plan import Case, Plan
from spml.bench.store import RunStore
from spml.bench.workers import Job, run_pending
from spml.data import load

SETTINGS = {"backbone": "tiny", "epochs": 1, "batch_size": 32, "lr": 3e-3, "flip": False}


def done(val_map=50.0, test_map=40.0, **more):
    """A record of a successful run."""
    result = {
        "val_map": val_map,
        "test_map": test_map,
        "selection": "complete",
        "best_epoch": 1,
        "seconds": 1.0,
    }
    return {"result": {**result, "per_class_ap": None, **more.pop("result", {})}, **more}


@pytest.fixture
def outcomes():
    """Records by id, and a function to look them up."""
    known = {}
    return known, known.get


@pytest.fixture(scope="session")
def job(scenes_file, tmp_path_factory):
    """A small finished bench on scenes: two methods, two seeds."""
    plan = Plan("bench", str(scenes_file), (Case("an", "an"), Case("gr", "gr")), (0, 1), SETTINGS)
    finished = Job(
        [plan],
        RunStore(tmp_path_factory.mktemp("bench")),
        {str(scenes_file): partial(load, str(scenes_file), labels="complete")},
        {"accelerator": "cpu"},
    )
    assert run_pending(finished) == 4
    return finished
