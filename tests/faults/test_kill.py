"""A run killed at any moment and resumed ends with the bytes of an undisturbed run."""

import random

import pytest

from tests.conftest import contents, same
from tests.faults.conftest import EVERY_STEP
from tests.faults.driver import spml
from tests.faults.faults import Fault

SIGNALS = (-9, -25)  # killed, or killed in the middle of a write
STEP, SCORED = "spml.train.step:Step.loss", "spml.train.loop:score_batches"
WRITE, MOVE = "spml.runs.folder:write_checkpoint", "pathlib:Path.replace"
AT_ONCE = Fault("at_once", "spml.train.fitting:open_cache")
BESIDE = Fault("beside", "spml.train.fitting:resolve")
MOMENTS = {
    "in an epoch, a method that draws": Fault("kill", STEP, 13),
    "in an epoch, after a checkpoint": Fault("kill", STEP, 8),
    "in validation": Fault("kill", SCORED, 5),
    "in the middle of writing a checkpoint": Fault("cut", WRITE, 7, "20000"),
    "the same, in a background thread": Fault("cut", WRITE, 7, "20000"),
    "before a checkpoint is moved into place": Fault("kill", MOVE, 12),
    "between the model and its description": Fault("kill", "spml.model.store:write_json", 2),
    "while the cache is being built": Fault("kill", "spml.data.images.store:Pool.put", 30),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_resumes_to_the_same_bytes(training, undisturbed, tmp_path, moment):
    fault, method = MOMENTS[moment], "drawn" if moment.endswith("draws") else "em_apl"
    words = (*training(method, tmp_path), *EVERY_STEP)
    more = (BESIDE,) if moment.endswith("in a background thread") else ()
    killed = spml(*words, faults=(fault, AT_ONCE, *more))
    assert killed.code in SIGNALS, killed
    resumed = spml(*words, "--resume")
    assert resumed.code == 0, resumed
    same(tmp_path / "run", undisturbed(method))


def test_a_kill_after_the_old_run_was_moved_aside_loses_no_run(training, undisturbed, tmp_path):
    first = training("drawn", tmp_path)
    assert spml(*first).code == 0
    old = contents(tmp_path / "run", without=())
    words = (*training("em_apl", tmp_path), "--overwrite")
    moved = Fault("kill", "spml.runs.folder:RunFolder.begin", after=True)
    assert spml(*words, faults=(moved,)).code == -9
    spml(*training("em_apl", tmp_path), "--resume").refused("was begun with")
    assert contents(tmp_path / "run", without=()) == old  # the old run is back
    assert spml(*words, faults=(moved,)).code == -9
    assert spml(*words).code == 0
    same(tmp_path / "run", undisturbed("em_apl"))


PLACES = {  # where the random moments fall; True: after the call
    "training": (STEP, False),
    "validation": (SCORED, False),
    "the cache": ("spml.data.images.store:Pool.put", False),
    "the cache's index": ("spml.data.images.store:Pool.commit", False),
    "writing": (WRITE, False),
    "written, not moved into place": (MOVE, False),
    "moved into place": (MOVE, True),
}


@pytest.fixture(scope="module")
def calls(training, tmp_path_factory):
    """How often each place is called in an undisturbed run with a checkpoint after each step."""

    def count(method):
        folder = tmp_path_factory.mktemp("calls")
        notes = [Fault("note", where, 0, str(folder / name)) for name, (where, _) in PLACES.items()]
        ended = spml(*training(method, folder), *EVERY_STEP, faults=(*notes, AT_ONCE))
        assert ended.code == 0, ended
        return {name: len((folder / name).read_text().splitlines()) for name in PLACES}

    return {method: count(method) for method in ("em_apl", "drawn")}


@pytest.mark.faults
@pytest.mark.parametrize("method", ["em_apl", "drawn"])
@pytest.mark.parametrize("number", range(20))
def test_a_run_killed_at_random_moments_resumes_to_the_same_bytes(
    training, undisturbed, calls, tmp_path, method, number
):
    """Two kills; the second is in the resumed run, which may end before it."""
    draw = random.Random(f"{method} {number}")
    often = EVERY_STEP if draw.random() < 0.7 else ()
    words = (*training(method, tmp_path), *often)
    faults = []
    for place in (sorted(PLACES)[number % len(PLACES)], draw.choice(sorted(PLACES))):
        where, after = PLACES[place]
        what = "cut" if place == "writing" and draw.random() < 0.7 else "kill"
        call, size = draw.randint(1, calls[method][place]), str(draw.randint(1, 40000))
        faults.append(Fault(what, where, call, size, after))
    more = (AT_ONCE, BESIDE)[: draw.randint(1, 2)]
    codes = [
        spml(*words, faults=(faults[0], *more)).code,
        spml(*words, "--resume", faults=(faults[1], *more)).code,
    ]
    assert codes[0] in (0, *SIGNALS) and codes[1] in (0, *SIGNALS), codes
    assert not often or codes[0] in SIGNALS
    if codes[1]:
        resumed = spml(*words, "--resume")
        assert resumed.code == 0, resumed
    same(tmp_path / "run", undisturbed(method))
