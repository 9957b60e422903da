"""Ctrl-C and SIGTERM save the run, print the command to resume it, and repeat no step."""

import shlex

import pytest

from tests.conftest import contents, same
from tests.faults.driver import spml
from tests.faults.faults import Fault
from tests.faults.test_kill import BESIDE, SCORED, STEP

DECODED = "spml.data.images.build:decode_bytes"
LINEAR = ("--linear-init", 2)


def steps(path):
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def all_steps(training, tmp_path_factory):
    """The steps of an undisturbed run."""
    folder = tmp_path_factory.mktemp("peace")
    count = Fault("note_step", STEP, 0, str(folder / "steps"))
    assert spml(*training("em_apl", folder), faults=(count,)).code == 0
    return steps(folder / "steps")


MOMENTS = {  # with the steps done by then
    "training": (Fault("terminate", STEP, 8), 8),
    "the last batch of an epoch": (Fault("interrupt", STEP, 5), 5),
    "the pass over the training split": (Fault("interrupt", SCORED, 2), 5),
    "validation": (Fault("terminate", SCORED, 3), 5),
    "the test": (Fault("interrupt", SCORED, 7), 15),
}


@pytest.mark.parametrize(
    "more", [(), pytest.param((BESIDE,), marks=pytest.mark.faults)], ids=["", "beside"]
)
@pytest.mark.parametrize("fault,done", MOMENTS.values(), ids=MOMENTS)
def test_a_stopped_run_is_saved_and_repeats_no_step(
    training, undisturbed, all_steps, tmp_path, fault, done, more
):
    words, log = training("em_apl", tmp_path), tmp_path / "steps"
    count = Fault("note_step", STEP, 0, str(log))
    stopped = spml(*words, faults=(count, fault, *more))
    stopped.interrupted()
    assert steps(log) == all_steps[:done] and not (tmp_path / "run/result.json").exists()
    command = stopped.err.partition("resume with: spml ")[2]
    resumed = spml(*shlex.split(command), faults=(count,))
    assert resumed.code == 0, resumed
    batch = f", batch {done % 5 or 5} of the next" if done < 15 else ""
    assert f"resuming after epoch {3 if done == 15 else (done - 1) // 5} of 3{batch}" in resumed.out
    assert steps(log) == all_steps
    same(tmp_path / "run", undisturbed("em_apl"))


NOTHING_YET = {
    "decoding pictures": (Fault("interrupt", DECODED, 9), ()),
    "decoding, by SIGTERM": (Fault("terminate", DECODED, 9), ()),
    "the first validation": (Fault("terminate", SCORED, 1), ()),
    "features of the linear start": (
        Fault("interrupt", "spml.model.classifier:Classifier.head_input", 3),
        LINEAR,
    ),
    "the linear start": (Fault("terminate", "spml.train.linear_init:method_loss", 7), LINEAR),
}


@pytest.mark.parametrize("fault,more", NOTHING_YET.values(), ids=NOTHING_YET)
def test_an_interruption_before_the_first_step_leaves_no_files(
    training, undisturbed, tmp_path, fault, more
):
    words = (*training("em_apl", tmp_path), *more)
    stopped = spml(*words, faults=(fault,))
    stopped.interrupted()
    assert "resume with" not in stopped.err and not (tmp_path / "run").exists()
    if not more:
        assert spml(*words, "--resume").code == 0
        same(tmp_path / "run", undisturbed("em_apl"))


def test_a_second_ctrl_c_ends_at_once(training, undisturbed, tmp_path):
    words, log = training("em_apl", tmp_path), tmp_path / "steps"
    faults = (Fault("note_step", STEP, 0, str(log)), *[Fault("interrupt", STEP, 8)] * 2)
    stopped = spml(*words, faults=faults)
    stopped.interrupted()
    # The eighth step was begun and is not saved.
    assert "--resume" in stopped.err and len(steps(log)) == 8
    resumed = spml(*words, "--resume")
    assert resumed.code == 0 and "resuming after epoch 1 of 3\n" in resumed.out
    same(tmp_path / "run", undisturbed("em_apl"))


def test_a_signal_after_the_last_step_changes_nothing(training, undisturbed, tmp_path):
    words = training("em_apl", tmp_path)
    late = Fault("terminate", "spml.runs.folder:RunFolder.write_result")
    assert spml(*words, faults=(late,)).code == 0
    same(tmp_path / "run", undisturbed("em_apl"))


def test_no_resume_command_is_printed_if_there_is_no_run_to_resume(training, tmp_path):
    assert spml(*training("drawn", tmp_path)).code == 0
    before = contents(tmp_path / "run", without=())
    words = (*training("em_apl", tmp_path), "--overwrite")
    stopped = spml(*words, faults=(Fault("interrupt", SCORED, 1),))
    stopped.interrupted()
    assert "resume with" not in stopped.err and contents(tmp_path / "run", without=()) == before
