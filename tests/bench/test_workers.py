"""Workers record failures and continue; an interrupted run can be resumed."""

import dataclasses
import time
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from spml.bench.plan import Case, Plan
from spml.bench.rows import method_cases
from spml.bench.search import Grid
from spml.bench.store import RunStore
from spml.bench.workers import Workers, run_pending
from spml.data import load
from spml.errors import DataError, UserError
from spml.runs.folder import RunFolder
from spml.runs.run import Run
from tests.conftest import stored

from .conftest import SETTINGS


def moved(job, path, *methods, seeds=(0,), **more):
    """The same job with other methods, in a new folder."""
    cases = tuple(one if isinstance(one, Case) else Case(one, one) for one in methods)
    plan = dataclasses.replace(job.plans[0], cases=cases, seeds=seeds, **more)
    return dataclasses.replace(job, plans=[plan], store=RunStore(path))


@pytest.fixture
def train(scenes):
    """Train the pending runs of a job on data that are loaded already."""
    return lambda job, *rest: run_pending(job, {job.plans[0].data: scenes}, *rest)


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """A user's own loss that fails in an epoch, until its file `fail` is gone."""

    def of(error, epoch):
        (tmp_path / "fail").touch()
        name = f"own_{epoch}_{error[:4]}"
        text = OWN_LOSS.format(epoch=epoch, file=str(tmp_path / "fail"), error=error)
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return Case("own", f"{name}:loss")

    return of


OWN_LOSS = """
from pathlib import Path
from torch.nn.functional import binary_cross_entropy_with_logits

def loss(logits, observed, epoch=1):
    if epoch == {epoch} and Path({file!r}).exists():
        raise {error}
    return binary_cross_entropy_with_logits(logits, observed.clamp(min=0).to(logits))
"""


def test_finished_runs_are_not_repeated(job):
    assert run_pending(job) == 0
    assert run_pending(dataclasses.replace(job, store=RunStore(job.store.path))) == 0
    assert not list((job.store.path / "locks").iterdir())


def test_a_failed_run_is_recorded_and_the_next_is_trained(job, train, failing, tmp_path):
    broken = failing("ZeroDivisionError('nothing\\n  to divide')", 1)
    bad = [Case("os", "os:getcwd"), Case("gr", "gr", {"sigma": 0}), broken]
    other, recorded = moved(job, tmp_path, *bad, "an"), []
    assert train(other, recorded.append) == 4
    assert len(recorded) == 4
    no_loss, sigma, own, an = (stored(other.store.home / f"{run.id}.json") for run in other.runs())
    assert "not a loss" in no_loss["error"] and "sigma must be positive" in sigma["error"]
    assert own["error"] == "ZeroDivisionError: nothing to divide" and "result" in an
    assert all("/" not in line for line in own["where"])


@pytest.mark.parametrize("when", [2, 3])
def test_an_interrupted_run_is_resumed_to_the_same_result(job, train, failing, tmp_path, when):
    case, settings = failing("KeyboardInterrupt", when), {**SETTINGS, "epochs": 3}
    one = moved(job, tmp_path / "cut", case, settings=settings)
    with pytest.raises(KeyboardInterrupt):
        train(one)
    (run,) = one.runs()
    assert one.store.state(run.id) == "pending"
    assert (one.store.run_folder(run) / "last.ckpt").exists()
    (tmp_path / "fail").unlink()
    assert train(one) == 1
    whole = moved(job, tmp_path / "whole", case, settings=settings)
    train(whole)
    for part in ("history", "bootstrap"):
        assert one.store.outcome(run.id)[part] == whole.store.outcome(run.id)[part]


def test_a_race_is_a_row_and_trains_again_with_each_seed(job, train, tmp_path):
    settings = {**SETTINGS, "race_budget": 0.0}
    other = moved(job, tmp_path, *method_cases(["auto"], {}), seeds=(0, 1), settings=settings)
    assert train(other) == 2
    results = [other.store.outcome(run.id)["result"] for run in other.runs()]
    assert [one["method"] for one in results] == ["ll_r", "ll_r"]
    assert all(one["test_map"] is not None and one["selection"] == "observed" for one in results)


def test_a_run_owned_by_another_process_has_not_failed(job, train, tmp_path):
    other = moved(job, tmp_path, "an", "gr")
    an, gr = other.runs()
    halted = RunFolder(other.store.run_folder(an))  # its lock is gone, like an expired one
    halted.begin({})
    with halted.claim:
        assert train(other) == 1
        assert other.store.state(an.id) == "pending" and other.store.state(gr.id) == "done"
        halted.abandon()
    assert train(other) == 1
    assert other.store.state(an.id) == "done"


def test_final_runs_follow_their_trials(job, train, tmp_path):
    other = moved(job, tmp_path, "an", seeds=(1,), search=Grid((1e-3,)))
    assert len(other.runs()) == 2 and train(other) == 3
    assert [run.seed for run in other.runs()] == [0, 0, 1]


def test_runs_without_their_data_or_weights_here_are_left_to_others(job):
    rows = (Case("a", "an"), Case("b", "an", settings={"weights": "none"}))
    plan = Plan("t", "voc", rows, (0,), {"backbone": "net"})
    runs = plan.runs(lambda name: None)

    def possible(**more):
        other = dataclasses.replace(
            job, sources={"voc": load}, file_backbones=frozenset({"net"}), **more
        )
        return [other.possible(run) for run in runs]

    assert possible() == [False, True] and possible(weights={"net": "file"}) == [True, True]
    assert not job.possible(runs[0])


def test_recorded_run_folders_are_removed_and_requested_scores_are_kept(job, train, tmp_path):
    plain = moved(job, tmp_path, "an", "em")
    first, second = plain.runs()
    also, scored = (tmp_path / "also",), frozenset({first.id})
    plain.store = RunStore(tmp_path / "scratch", tmp_path / "results", also, False, scored)
    train(plain)
    assert not list((tmp_path / "scratch" / "runs").iterdir())
    for folder in (tmp_path / "results", tmp_path / "also"):
        assert {path.stem for path in folder.glob("*.json")} == {first.id, second.id}
        scored = folder / "scores" / first.id
        assert (scored / "scores" / "test.npz").is_file()
        assert not (scored / "best").exists() and not (scored / "last.ckpt").exists()
        assert "accelerator" in stored(scored / "config.json")
        assert not (folder / "scores" / second.id).exists()
    assert Run.read(tmp_path / "results" / "scores" / first.id).scored.split == "test"


@pytest.mark.slow
def test_processes_share_the_work_and_a_stopped_run_can_be_resumed(job, tmp_path):
    other = moved(job, tmp_path, "an", "gr", seeds=(0, 1))
    other.threads = torch.get_num_threads()  # results depend on it, to the last bits
    workers = Workers(other, 2)
    end = time.time() + 300
    while workers.alive() and time.time() < end:
        time.sleep(0.1)
    assert [process.exitcode for process in workers.processes] == [0, 0]
    fresh = RunStore(tmp_path)
    for run in other.runs():
        assert fresh.outcome(run.id)["bootstrap"] == job.store.outcome(run.id)["bootstrap"]
    long = moved(job, tmp_path / "long", "gr", settings={**SETTINGS, "epochs": 500})
    workers = Workers(long, 1)
    (run,) = long.runs()
    while not (long.store.run_folder(run) / "last.ckpt").exists() and time.time() < end:
        time.sleep(0.1)
    workers.stop()
    assert workers.processes[0].exitcode == 0
    assert RunStore(tmp_path / "long").state(run.id) == "pending"
    assert (long.store.run_folder(run) / "last.ckpt").exists()


def test_unreadable_data_stop_the_work_and_fail_no_run(job, tmp_path, capfd):
    gone = {name: partial(load, "voc", str(tmp_path / "gone")) for name in job.sources}
    other = dataclasses.replace(moved(job, tmp_path / "out", "an", seeds=(0, 1)), sources=gone)
    with pytest.raises(UserError, match="gone"):
        run_pending(other)
    workers = Workers(other, 2)
    while workers.alive():
        time.sleep(0.1)
    assert workers.replaced == 0 and [process.exitcode for process in workers.processes] == [2, 2]
    assert "Traceback" not in (errors := capfd.readouterr().err) and "gone" in errors
    assert {other.store.state(run.id) for run in other.runs()} == {"pending"}
    with pytest.raises(SystemExit) as ended:
        workers.check()
    assert ended.value.code == 2


def test_unreadable_pictures_fail_no_run(job, train, tmp_path, monkeypatch):
    def unreadable(*arguments, **more):
        raise DataError("a.png cannot be read")

    monkeypatch.setattr("spml.train.fit", unreadable)
    other = moved(job, tmp_path, "an")
    with pytest.raises(DataError, match="cannot be read"):
        train(other)
    assert {other.store.state(run.id) for run in other.runs()} == {"pending"}


@pytest.mark.parametrize("codes", [(1, 0), (-9, 2), (255, 255)])
def test_lost_workers_are_reported_if_runs_are_pending(job, tmp_path, codes):
    workers = Workers(job, 0)
    workers.processes = [SimpleNamespace(exitcode=code) for code in codes]
    workers.check()  # all runs are finished
    workers.job = moved(job, tmp_path, "an")
    with pytest.raises(
        UserError, match=f"workers ended with exit code {codes[0]} and left runs pending"
    ):
        workers.check()
    workers.processes = [SimpleNamespace(exitcode=0)]
    workers.check()  # other workers train the rest, or it came too late
