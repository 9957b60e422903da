"""A lock has one holder; a dead holder loses it."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from spml.bench import locks
from spml.bench.locks import STALE, Lock, stale
from spml.bench.plan import Run
from spml.bench.store import ATTEMPTS, RunStore
from spml.errors import UserError

from .conftest import done

ONE = Run("t", "row", "final", "d", "an", {}, {}, 0)


def gone():
    """The id of an ended process."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def written(path, pid, host=None, attempt=1, age=0.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = {"host": host or locks.host(), "pid": pid, "token": "x", "attempt": attempt}
    path.write_text(json.dumps(owner))
    os.utime(path, (time.time() - age,) * 2)


def test_a_lock_has_one_holder_until_it_is_released(tmp_path):
    first, second = Lock(tmp_path / "a.lock"), Lock(tmp_path / "a.lock")
    assert first.take() and not second.take()
    second.release()
    assert not second.take()
    first.release()
    assert second.take() and not list(tmp_path.glob(".*"))


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    path = tmp_path / "a.lock"
    written(path, gone(), attempt=2)
    lock = Lock(path)
    assert lock.take() and lock.attempt == 3
    assert not Lock(path).take()


def test_a_process_that_died_during_a_takeover_blocks_others_only_briefly(tmp_path):
    path = tmp_path / "a.lock"
    for file in (path, path.with_suffix(".turn")):
        written(file, gone())
    assert not Lock(path).take()  # but removes the files of the dead one
    assert Lock(path).take() and [file.name for file in tmp_path.iterdir()] == ["a.lock"]


def test_the_lock_of_another_machine_is_respected_until_it_expires(tmp_path):
    path = tmp_path / "a.lock"
    written(path, gone(), host="elsewhere")
    assert not Lock(path).take()
    written(path, gone(), host="elsewhere", age=STALE + 1)
    assert Lock(path).take()


def test_the_holder_refreshes_its_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.02)
    lock = Lock(tmp_path / "a.lock")
    assert lock.take()
    os.utime(lock.path, (0, 0))
    with lock.held():
        deadline = time.time() + 5
        while lock.path.stat().st_mtime == 0 and time.time() < deadline:
            time.sleep(0.02)
        assert not stale(lock.path)
    assert not lock.path.exists()


def test_only_one_of_many_processes_takes_over_a_stale_lock(tmp_path):
    for number in range(10):
        path = tmp_path / f"{number}.lock"
        if number == 0:
            written(path, gone())
        else:
            written(path, 1, host="elsewhere", age=STALE + 1)
        barrier, got = threading.Barrier(8), []

        def attempt(path=path, barrier=barrier, got=got):
            lock = Lock(path)
            barrier.wait()
            if lock.take():
                got.append(lock)

        threads = [threading.Thread(target=attempt) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 1


def test_states_of_runs_and_the_next_run_to_take(tmp_path):
    runs = [replace(ONE, seed=seed) for seed in range(3)]
    here, there = RunStore(tmp_path), RunStore(tmp_path)
    first, lock = here.take(runs)
    second, _ = there.take(runs)
    assert (first, second) == (runs[0], runs[1])
    assert [here.state(run.id) for run in runs] == ["running", "running", "pending"]
    here.write(first, done())
    lock.release()
    there.write(second, {"error": "no"})
    assert [here.state(run.id) for run in runs] == ["done", "failed", "pending"]
    assert RunStore(tmp_path).take(runs[:2]) is None
    assert there.forget_failures(runs) == 1 and RunStore(tmp_path).state(second.id) != "failed"


def test_the_run_of_a_dead_process_is_pending(tmp_path):
    written(tmp_path / "locks" / f"{ONE.id}.lock", gone())
    assert RunStore(tmp_path).state(ONE.id) == "pending"


def test_a_run_that_finishes_before_its_lock_is_acquired_is_not_repeated(tmp_path, monkeypatch):
    take = Lock.take

    def late(self):
        RunStore(tmp_path).write(ONE, done())
        return take(self)

    monkeypatch.setattr(Lock, "take", late)
    assert RunStore(tmp_path).take([ONE]) is None
    assert not list((tmp_path / "locks").iterdir())


def test_a_run_that_repeatedly_kills_its_process_is_marked_failed(tmp_path):
    store = RunStore(tmp_path)
    written(tmp_path / "locks" / f"{ONE.id}.lock", gone(), attempt=ATTEMPTS - 1)
    assert store.take([ONE]) is not None
    written(tmp_path / "locks" / f"{ONE.id}.lock", gone(), attempt=ATTEMPTS)
    assert store.take([ONE]) is None
    assert store.state(ONE.id) == "failed"
    assert "died without an error message" in store.outcome(ONE.id)["error"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "the result lacks val_map, best_epoch, selection"),
        ('{"result": {"val_map": 50.0}}', "the result lacks best_epoch, selection"),
    ],
)
def test_a_damaged_record_is_named(tmp_path, text, message):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "x.json").write_text(text)
    remedy = "delete the file to train the run again"
    with pytest.raises(UserError, match=rf"x\.json: {message}.*; {remedy}"):
        RunStore(tmp_path).outcome("x")
