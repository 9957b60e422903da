"""Workers record failures and continue; an interrupted run can be resumed."""

import dataclasses
import time
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from spml.bench.plan import Case, Plan
from spml.bench.search import Grid
from spml.bench.store import RunStore
from spml.bench.workers import Workers, run_pending
from spml.data import load
from spml.errors import DataError, UserError
from spml.runs.folder import RunFolder

from .conftest import SETTINGS, stored


def moved(job, path, cases, seeds=(0,), **more):
    """The same job with other rows, in a new folder."""
    plan = dataclasses.replace(job.plans[0], cases=tuple(cases), seeds=seeds, **more)
    return dataclasses.replace(job, plans=[plan], store=RunStore(path))


def test_finished_runs_are_not_repeated(job):
    assert run_pending(job) == 0
    assert run_pending(dataclasses.replace(job, store=RunStore(job.store.path))) == 0
    assert not list((job.store.path / "locks").iterdir())


def test_a_failed_run_is_recorded_and_the_next_is_trained(job, scenes, tmp_path, monkeypatch):
    def broken(*arguments, **more):
        raise ZeroDivisionError("nothing\n  to divide")

    bad = [Case("own", "os:getcwd"), Case("gr", "gr", {"sigma": 0}), Case("role", "role")]
    monkeypatch.setattr("spml.methods.role._initial", broken)
    other = moved(job, tmp_path, [*bad, Case("an", "an")])
    recorded = []
    assert run_pending(other, {other.plans[0].data: scenes}, recorded.append) == 4
    assert len(recorded) == 4
    own, sigma, role, an = (stored(other.store.home / f"{run.id}.json") for run in other.runs())
    assert "not a loss" in own["error"] and "sigma must be positive" in sigma["error"]
    assert role["error"] == "ZeroDivisionError: nothing to divide" and "result" in an
    assert all("/" not in line for line in role["where"])


@pytest.mark.parametrize("when", [1, 2])
def test_an_interrupted_run_is_resumed_to_the_same_result(job, scenes, tmp_path, monkeypatch, when):
    from spml.train.loop import Training

    one = moved(job, tmp_path, [Case("gr", "gr")], settings={**SETTINGS, "epochs": 3})
    validate = Training._validate

    def interrupted(self, epoch, line):
        if epoch == when:
            raise KeyboardInterrupt
        validate(self, epoch, line)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Training, "_validate", interrupted)
        run_pending(one, {one.plans[0].data: scenes})
    (run,) = one.runs()
    assert one.store.state(run.id) == "pending"
    assert run_pending(one, {one.plans[0].data: scenes}) == 1
    whole = moved(job, tmp_path / "whole", [Case("gr", "gr")], settings={**SETTINGS, "epochs": 3})
    run_pending(whole, {one.plans[0].data: scenes})
    assert one.store.outcome(run.id)["history"] == whole.store.outcome(run.id)["history"]
    assert one.store.outcome(run.id)["bootstrap"] == whole.store.outcome(run.id)["bootstrap"]


def test_a_run_owned_by_another_process_has_not_failed(job, scenes, tmp_path):
    other = moved(job, tmp_path, [Case("an", "an"), Case("gr", "gr")])
    an, gr = other.runs()
    halted = RunFolder(other.store.run_folder(an))  # its lock is gone, like an expired one
    halted.begin({})
    with halted.claim:
        assert run_pending(other, {other.plans[0].data: scenes}) == 1
        assert other.store.state(an.id) == "pending" and other.store.state(gr.id) == "done"
        halted.abandon()
    assert run_pending(other, {other.plans[0].data: scenes}) == 1
    assert other.store.state(an.id) == "done"


def test_final_runs_follow_their_trials(job, scenes, tmp_path):
    other = moved(job, tmp_path, [Case("an", "an")], seeds=(1,), search=Grid((1e-3,)))
    assert len(other.runs()) == 2 and run_pending(other, {other.plans[0].data: scenes}) == 3
    assert [run.seed for run in other.runs()] == [0, 0, 1]


def test_no_run_starts_if_the_remaining_time_is_too_short(job, scenes, tmp_path):
    other = moved(job, tmp_path, [Case("an", "an")], seeds=(0, 1, 2))
    assert run_pending(dataclasses.replace(other, deadline=time.time() - 1)) == 0
    slow = dataclasses.replace(other, deadline=time.time() + 0.01)
    assert run_pending(slow, {other.plans[0].data: scenes}) == 1


def test_runs_without_their_data_or_weights_here_are_left_to_others(job):
    plan = Plan(
        "t",
        "voc",
        (Case("a", "an"), Case("b", "an", settings={"weights": "none"})),
        (0,),
        {"backbone": "net"},
    )
    runs = plan.runs(lambda name: None)

    def possible(**more):
        other = dataclasses.replace(
            job, sources={"voc": load}, file_backbones=frozenset({"net"}), **more
        )
        return [other.possible(run) for run in runs]

    assert possible() == [False, True] and possible(weights={"net": "file"}) == [True, True]
    assert not job.possible(runs[0])


def test_recorded_run_folders_are_removed_and_requested_scores_are_kept(job, scenes, tmp_path):
    plain = moved(job, tmp_path, [Case("an", "an"), Case("em", "em")])
    first, second = plain.runs()
    plain.store = RunStore(
        tmp_path / "scratch",
        tmp_path / "results",
        (tmp_path / "also",),
        keep=False,
        scored=frozenset({first.id}),
    )
    run_pending(plain, {plain.plans[0].data: scenes})
    assert not list((tmp_path / "scratch" / "runs").iterdir())
    for folder in ("results", "also"):
        assert {path.name for path in (tmp_path / folder).glob("*.json")} == {
            f"{first.id}.json",
            f"{second.id}.json",
        }
        scored = tmp_path / folder / "scores" / first.id
        assert (scored / "scores" / "test.npz").is_file() and not (scored / "best").exists()
        assert not (scored / "last.ckpt").exists()
        assert "accelerator" in stored(scored / "config.json")
        assert not (tmp_path / folder / "scores" / second.id).exists()
    from spml.runs.run import Run

    assert Run.read(tmp_path / "results" / "scores" / first.id).scored.split == "test"


@pytest.mark.slow
def test_processes_share_the_work_and_a_stopped_run_can_be_resumed(job, tmp_path):
    other = moved(job, tmp_path, [Case("an", "an"), Case("gr", "gr")], seeds=(0, 1))
    other.threads = torch.get_num_threads()  # results depend on it, to the last bits
    workers = Workers(other, 2)
    end = time.time() + 300
    while workers.alive() and time.time() < end:
        time.sleep(0.1)
    assert [process.exitcode for process in workers.processes] == [0, 0]
    fresh = RunStore(tmp_path)
    for run in other.runs():
        assert fresh.outcome(run.id)["bootstrap"] == job.store.outcome(run.id)["bootstrap"]
    long = moved(job, tmp_path / "long", [Case("gr", "gr")], settings={**SETTINGS, "epochs": 500})
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
    other = dataclasses.replace(
        moved(job, tmp_path / "out", [Case("an", "an")], seeds=(0, 1)), sources=gone
    )
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


def test_unreadable_pictures_fail_no_run(job, scenes, tmp_path, monkeypatch):
    def unreadable(*arguments, **more):
        raise DataError("a.png cannot be read")

    monkeypatch.setattr("spml.train.fit", unreadable)
    other = moved(job, tmp_path, [Case("an", "an")])
    with pytest.raises(DataError, match="cannot be read"):
        run_pending(other, {other.plans[0].data: scenes})
    assert {other.store.state(run.id) for run in other.runs()} == {"pending"}


@pytest.mark.parametrize("codes", [(1, 0), (-9, 2), (255, 255)])
def test_lost_workers_are_reported_if_runs_are_pending(job, tmp_path, codes):
    workers = Workers(job, 0)
    workers.processes = [SimpleNamespace(exitcode=code) for code in codes]
    workers.check()  # all runs are finished
    workers.job = moved(job, tmp_path, [Case("an", "an")])
    with pytest.raises(
        UserError, match=f"workers ended with exit code {codes[0]} and left runs pending"
    ):
        workers.check()
    workers.processes = [SimpleNamespace(exitcode=0)]
    workers.check()  # other workers train the rest, or it came too late
