"""Several processes compute the same figures, save together and end together."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from spml.runs.checkpoint import read_checkpoint
from tests.conftest import contents, history
from tests.faults.driver import ended, program, spml
from tests.faults.faults import Fault
from tests.faults.test_kill import STEP

HANGING = 30  # seconds
START, WRITE = "spml.train.fitting:resolve", "spml.runs.folder:write_checkpoint"
TWO = ("--devices", 2)
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
METHOD = ("--method", "em_apl", "--set", "warmup=1")


@pytest.fixture(scope="module")
def words(scenes_file):
    """A run whose figures do not depend on the number of processes: no batch statistics, SGD."""
    common = "--backbone tiny --epochs 3 --batch-size 8 --lr 0.01 --head-lr 1 --flip False"
    more = "--labels complete --optimizer sgd --frozen-norm --accelerator cpu"
    return (*f"train {scenes_file} {common} {more}".split(), *METHOD)


@pytest.fixture(scope="module")
def alone(words, tmp_path_factory):
    """The run of one process."""
    run = tmp_path_factory.mktemp("alone") / "run"
    assert spml(*words, "--out", run).code == 0
    return run


def alike(run, expected):
    """Assert that the figures of every epoch and of the test agree up to rounding."""
    for one, other in zip(history(run), history(expected), strict=True):
        assert one["val_map"] == pytest.approx(other["val_map"], abs=1e-2)
        assert one.get("loss", 0) == pytest.approx(other.get("loss", 0), rel=1e-4)
    results = [json.loads((folder / "result.json").read_text()) for folder in (run, expected)]
    assert results[0]["test_map"] == pytest.approx(results[1]["test_map"], abs=1e-2)
    assert (run / "report.html").exists() and not list(run.rglob("*.part"))


def test_ctrl_c_saves_once_and_the_run_resumes_in_one_process(words, alone, tmp_path):
    run = tmp_path / "run"
    stopped = ended(program(*words, *TWO, "--out", run, faults=(Fault("group", STEP, 23),)))
    stopped.interrupted()
    assert stopped.err.count("\n") == 2
    assert "--devices 2" in stopped.err
    assert "--resume" in stopped.err
    resumed = spml(*words, "--out", run, "--resume")
    assert resumed.code == 0, resumed
    # The processes agree on a stop after every tenth step.
    assert "resuming after epoch 1 of 3, batch 10 of the next" in resumed.out
    alike(run, alone)


def test_a_worker_that_is_killed_ends_the_run(words, alone, tmp_path):
    run, log = tmp_path / "run", tmp_path / "killed"
    note = Fault("note", STEP, 20, str(log), rank=1)
    faults = (note, Fault("kill", STEP, 20, after=True, rank=1))
    process = program(*words, *TWO, "--out", run, faults=faults)
    until(log, process)
    killed = time.monotonic()
    ended(process).refused("process 2 of 2 was killed (SIGKILL)", "--resume")
    assert time.monotonic() - killed < HANGING
    assert spml(*words, "--out", run, "--resume").code == 0
    alike(run, alone)


@pytest.mark.faults
def test_a_process_that_waits_for_a_dead_worker_is_ended(words, tmp_path):
    """On a GPU, a process does not notice that a peer has ended."""
    faults = (Fault("kill", STEP, 20, rank=1), Fault("slow", STEP, 20, "1000"))
    stopped = ended(program(*words, *TWO, "--out", tmp_path / "run", faults=faults))
    stopped.refused("process 2 of 2 was killed (SIGKILL)")
    assert read_checkpoint(tmp_path / "run/last.ckpt")["epoch"] == 1


def until(path, process):
    """Wait for a file that the program writes."""
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


@pytest.mark.faults
def test_two_devices_resume_the_run_of_one_with_the_same_figures(words, alone, tmp_path):
    run = tmp_path / "run"
    spml(*words, "--out", run, faults=(Fault("terminate", STEP, 18),)).interrupted()
    faults = (
        # The other process needs no result and ends earlier.
        Fault("slow", "spml.runs.folder:RunFolder.write_result", 1, "3"),
        Fault("note", "spml.report:write_report", 0, str(tmp_path / "reported"), rank=1),
    )
    done = ended(program(*words, *TWO, "--out", run, "--resume", "--quiet", faults=faults))
    assert (done.code, done.out, done.err) == (0, "", "") and not (tmp_path / "reported").exists()
    alike(run, alone)


@pytest.mark.faults
def test_torchrun_gives_the_same_run(words, alone, tmp_path, monkeypatch):
    monkeypatch.setenv("SPML_PARENT", "1")  # of an unrelated process
    run = tmp_path / "run"
    done = ended(program(*words, "--out", run, launcher=TORCHRUN))
    assert done.code == 0, done
    assert done.out.count("chosen epoch") == 1
    alike(run, alone)


@pytest.mark.faults
def test_torchrun_ends_with_a_worker(words, alone, tmp_path):
    run = tmp_path / "run"
    faults = (Fault("kill", STEP, 20, rank=1),)
    died = ended(program(*words, "--out", run, faults=faults, launcher=TORCHRUN))
    assert died.code != 0 and "Signal 9 (SIGKILL)" in died.err
    assert spml(*words, "--out", run, "--resume").code == 0
    alike(run, alone)


@pytest.mark.faults
def test_torchrun_saves_and_reports_once(words, alone, tmp_path):
    run, log = tmp_path / "run", tmp_path / "begun"
    faults = (Fault("note", STEP, 20, str(log)), Fault("slow", STEP, 0, "0.05"))
    process = program(*words, "--out", run, faults=faults, launcher=TORCHRUN)
    until(log, process)
    process.send_signal(signal.SIGINT)  # torchrun passes it on
    stopped = ended(process)
    assert stopped.code != 0 and stopped.err.count("spml: interrupted; resume with: ") == 1, stopped
    resumed = spml(*words, "--out", run, "--resume")
    assert resumed.code == 0 and "of the next" in resumed.out
    alike(run, alone)
    wrong = ("--method", "tests.faults.methods:broken", "--set", "step=20")
    stopped = ended(
        program(*words[: -len(METHOD)], *wrong, "--out", tmp_path / "wrong", launcher=TORCHRUN)
    )
    assert (
        stopped.code != 0 and stopped.err.count("spml: ") == stopped.err.count("loss is nan") == 1
    ), stopped


@pytest.mark.faults
@pytest.mark.parametrize(("where", "call"), [(STEP, 20), (START, 1)], ids=["trains", "starts"])
def test_the_others_end_with_the_first_process(words, tmp_path, where, call):
    """At the start they would wait for it for half an hour."""
    log = tmp_path / "pid"
    faults = (Fault("process", where, call, str(log), rank=1),)
    killed_first(log, program(*words, *TWO, "--out", tmp_path / "run", faults=faults))


@pytest.mark.faults
def test_ctrl_c_at_the_start_is_reported(words, tmp_path):
    """The first process waits for the others in a call that blocks signals.

    Lightning would kill it without a message.
    """
    faults = (Fault("group", START, 1, rank=1),)
    stopped = ended(program(*words, *TWO, "--out", tmp_path / "run", faults=faults), HANGING)
    stopped.interrupted()
    assert stopped.err.strip() == "spml: interrupted" and not (tmp_path / "run").exists()


@pytest.mark.faults
def test_a_worker_killed_at_the_start_ends_the_run(words, tmp_path):
    faults = (Fault("kill", START, 1, rank=1),)
    stopped = ended(program(*words, *TWO, "--out", tmp_path / "run", faults=faults), HANGING)
    stopped.refused("process 2 of 2 was killed (SIGKILL)")


def killed_first(log, process):
    """Kill the first process once the other has written its number; the other ends too."""
    until(log, process)
    worker = int(log.read_text())
    process.kill()
    process.wait()
    deadline = time.monotonic() + HANGING
    while alive(worker):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def alive(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.faults
def test_the_error_of_one_worker_is_reported(words, alone, tmp_path):
    run = tmp_path / "run"
    faults = (Fault("memory", STEP, 20, rank=1),)
    died = ended(program(*words, *TWO, "--out", run, faults=faults))
    assert died.code == 2, died
    first, second = died.errors
    assert "out of memory" in first
    assert "process 2 of 2 ended with exit code 2" in second
    assert spml(*words, "--out", run, "--resume").code == 0
    alike(run, alone)


@pytest.mark.faults
def test_an_error_of_all_processes_is_reported_once(words, tmp_path):
    wrong = ("--method", "tests.faults.methods:broken", "--set", "step=20", "--set", "value=nan")
    stopped = ended(program(*words[: -len(METHOD)], *wrong, *TWO, "--out", tmp_path / "run"))
    stopped.refused("loss is nan in epoch 2, batch 4")


@pytest.mark.faults
def test_a_skipped_batch_is_skipped_by_all_processes(words, tmp_path):
    """Before the backward pass, which averages gradients over processes, and after it."""
    for name in ("broken", "broken_gradient"):
        wrong = ("--method", f"tests.faults.methods:{name}", "--set", "step=20", "--on-nan", "skip")
        common = (*words[: -len(METHOD)], *wrong, "--out")
        done = ended(program(*common, tmp_path / f"{name}2", *TWO))
        assert done.code == 0, done
        assert spml(*common, tmp_path / f"{name}1").code == 0
        skipped = [line.get("skipped") for line in history(tmp_path / f"{name}2")]
        assert skipped == [None, None, 1, None]
        alike(tmp_path / f"{name}2", tmp_path / f"{name}1")


@pytest.mark.faults
def test_no_process_ends_while_the_checkpoint_is_written(words, alone, tmp_path):
    run = tmp_path / "run"
    faults = (Fault("group", STEP, 23), Fault("slow", WRITE, 2, "8"))
    ended(program(*words, *TWO, "--out", run, faults=faults)).interrupted()
    resumed = spml(*words, "--out", run, "--resume")
    assert "batch 10 of the next" in resumed.out
    alike(run, alone)


@pytest.mark.faults
def test_a_full_disk_is_reported_once(words, tmp_path):
    faults = (Fault("limit", WRITE, 2, "900"),)
    stopped = ended(program(*words, *TWO, "--out", tmp_path / "run", faults=faults))
    stopped.refused("last.ckpt cannot be written")


@pytest.mark.faults
def test_a_second_ctrl_c_ends_all_processes_at_once(words, tmp_path):
    log = tmp_path / "saving"
    faults = (
        Fault("group", STEP, 23),
        Fault("note", WRITE, 2, str(log)),
        Fault("slow", WRITE, 2, "600"),
    )
    process = program(*words, *TWO, "--out", tmp_path / "run", faults=faults)
    until(log, process)
    before = contents(tmp_path / "run", without=())
    os.killpg(process.pid, signal.SIGINT)
    stopped = ended(process, HANGING)
    stopped.interrupted()
    assert contents(tmp_path / "run", without=()) == before
