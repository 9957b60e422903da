"""Full disks, read-only folders, missing pictures and lack of memory: one line, no loss."""

import shutil

import pytest

from spml.runs.checkpoint import read_checkpoint
from tests.conftest import contents, same
from tests.faults.driver import spml
from tests.faults.faults import Fault
from tests.faults.test_kill import BESIDE, STEP

LITTLE = "900"  # bytes that a file may have
FOLDER = "spml.runs.folder"


def limited(where, call, size=LITTLE):
    return Fault("limit", where, call, size)


FULL = {  # the write that fails, and the file that the error names
    "the first checkpoint": (limited(f"{FOLDER}:write_checkpoint", 1), "last.ckpt"),
    "a checkpoint": (limited(f"{FOLDER}:write_checkpoint", 2), "last.ckpt"),
    "its checksum": (Fault("full", "torch:save", 2, after=True), "last.ckpt"),
    "scores": (limited(f"{FOLDER}:RunFolder.write_scores", 3, "300"), "scores/val-02.npz"),
    "history": (limited(f"{FOLDER}:RunFolder.write_history", 3, "50"), "history.jsonl"),
    "the best model": (limited("spml.train.loop:save_model", 2), "best/model.safetensors"),
    "its description": (limited("spml.model.store:write_json", 2, "100"), "best/model.json"),
    "the result": (limited(f"{FOLDER}:RunFolder.write_result", 1, "100"), "result.json"),
    "the report": (limited("spml.report.run_page:write_report", 1), "report.html"),
}


@pytest.mark.parametrize(
    "more", [(), pytest.param((BESIDE,), marks=pytest.mark.faults)], ids=["", "beside"]
)
@pytest.mark.parametrize("fault,name", FULL.values(), ids=FULL)
def test_on_a_full_disk_the_last_checkpoint_is_whole(
    training, undisturbed, tmp_path, fault, name, more
):
    words = training("em_apl", tmp_path)
    stopped = spml(*words, faults=(fault, *more))
    # In the background, another file may fail first.
    reason = "File too large" if fault.what == "limit" else "the disk is full"
    stopped.refused(f"cannot be written: {reason}", "run/" if more else f"run/{name}")
    if fault.call > 1 or name in ("result.json", "report.html"):
        assert read_checkpoint(tmp_path / "run/last.ckpt")["epoch"] in (1, 2, 3)
    assert not list(tmp_path.rglob("*.part"))
    assert spml(*words, "--resume").code == 0
    same(tmp_path / "run", undisturbed("em_apl"))


@pytest.mark.parametrize(
    "fault",
    [
        Fault("limit", "spml.data.images.build:decode_bytes", 5, LITTLE),
        Fault("full", "os:pwrite", 5),
        Fault("full", "spml.data.images.store:Pool.commit", 1),
    ],
    ids=["in a picture", "between pictures", "in the index"],
)
def test_a_full_disk_is_reported_for_the_cache_and_the_next_run_completes_it(
    training, undisturbed, tmp_path, fault
):
    words = training("em_apl", tmp_path)
    spml(*words, faults=(fault,)).refused(
        "cache in", "give --cache-dir with another folder, or --cache none"
    )
    assert not (tmp_path / "run").exists()
    assert spml(*words).code == 0
    same(tmp_path / "run", undisturbed("em_apl"))


def test_a_read_only_run_folder_is_reported_and_unchanged(training, undisturbed, tmp_path):
    words, run = training("em_apl", tmp_path), tmp_path / "run"
    spml(*words, faults=(Fault("read_only", STEP, 8, str(run)),)).refused(
        f"{run}", "Permission denied"
    )
    for folder in (run, run / "best", run / "scores"):
        folder.chmod(0o755)
    before = contents(run, without=())
    again = spml(
        *words, "--resume", faults=(Fault("read_only", "spml.train.fitting:resolve", 1, str(run)),)
    )
    again.refused(f"{run}", "Permission denied")
    for folder in (run, run / "best", run / "scores"):
        folder.chmod(0o755)
    assert contents(run, without=()) == before
    assert spml(*words, "--resume").code == 0
    same(run, undisturbed("em_apl"))


def test_a_read_only_parent_folder_is_reported(training, tmp_path):
    place = tmp_path / "mine"
    place.mkdir()
    words = training("em_apl", place)
    spml(*words, faults=(Fault("read_only", "spml.train.fitting:resolve", 1, str(place)),)).refused(
        "Permission denied"
    )
    place.chmod(0o755)
    assert not list(place.iterdir())


def test_a_missing_picture_is_named_with_file_and_line(training, undisturbed, photos, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(photos.parent, own)
    data = training("em_apl", tmp_path)[2:]
    words = ("train", own / "photos.csv", *data, "--cache", "none")
    gone = Fault("vanish", STEP, 6, str(own / "03.png"))
    spml(*words, faults=(gone,)).refused("photos.csv, line 5", "03.png")
    assert read_checkpoint(tmp_path / "run/last.ckpt")["epoch"] == 1
    shutil.copy(photos.parent / "03.png", own)
    assert spml(*words, "--resume").code == 0
    assert contents(tmp_path / "run/scores") == contents(undisturbed("em_apl") / "scores")


@pytest.mark.parametrize("step,left", [(8, True), (3, False)])
def test_lack_of_memory_is_reported_and_the_run_resumes(
    training, undisturbed, tmp_path, step, left
):
    words = training("em_apl", tmp_path)
    spml(*words, faults=(Fault("memory", STEP, step),)).refused(
        "out of memory with batches of 8", "--batch-size"
    )
    assert (tmp_path / "run").exists() == left
    assert spml(*words, "--resume").code == 0
    same(tmp_path / "run", undisturbed("em_apl"))
