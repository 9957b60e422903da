"""`--method auto`: the race, its folder, resuming, and what it may read."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from spml.data import SparseLabels, load
from spml.report.run_page import write_report
from spml.runs.run import Run
from spml.train import Settings, fit
from tests.conftest import refused

EPOCHS = 2
SAME = ("history.jsonl", "race.json", "best/model.safetensors", "observed.npz")
SCRIPT = """
import sys
from spml.data import load
from spml.train import Settings, fit

fit(
    load(sys.argv[1]),
    Settings(epochs=2, accelerator="cpu", devices=int(sys.argv[3])),
    sys.argv[2],
    resume=True,
    quiet=True,
)
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Features of 600 items with one observed class each, and complete test labels."""
    random = np.random.default_rng(0)
    labels = np.where(random.random((700, 6)) < 0.3, 1, -1).astype(np.int8)
    labels[np.arange(700), random.integers(6, size=700)] = 1
    x = (random.normal(size=(700, 12)) + labels @ random.normal(size=(6, 12))).astype(np.float32)
    observed = np.zeros_like(labels)
    for row in range(600):
        observed[row, random.choice(np.flatnonzero(labels[row] == 1))] = 1
    observed[600:] = labels[600:]
    path = tmp_path_factory.mktemp("table") / "items.npz"
    split = np.array(["train"] * 600 + ["test"] * 100)
    np.savez(path, x=x, labels=observed, classes=np.array(list("abcdef")), split=split)
    return path


def run_race(data, out, *, options=None, resume=False, overwrite=False, **settings):
    """Train into a folder on the CPU, by a race unless a method is named."""
    settings = Settings(**{"epochs": EPOCHS, "accelerator": "cpu", **settings})
    ways = {"options": options, "resume": resume, "overwrite": overwrite}
    return fit(data, settings, out, quiet=True, **ways)


@pytest.fixture(scope="module")
def raced(table, tmp_path_factory):
    """A finished race."""
    out = tmp_path_factory.mktemp("race") / "run"
    run_race(load(table), out)
    return out


@pytest.fixture
def few(table):
    """An experiment of 100 training and 40 validation rows."""
    data = load(table)
    return replace(data, train_rows=data.train_rows[:100], val_rows=data.val_rows[:40])


def content(folder):
    return {name: (folder / name).read_bytes() for name in SAME}


def race_of(folder):
    return json.loads((folder / "race.json").read_text())


def test_the_folder_is_the_run_of_the_winner(raced, table, tmp_path):
    run = Run(raced)
    race = race_of(raced)
    winner = next(one for one in race["candidates"] if one["outcome"] == "winner")
    assert race["winner"] == winner["name"] == run.config["race"]["winner"]
    assert run.config["method"] == run.require_result()["method"] == winner["method"]
    assert run.require_result()["test_map"] is not None
    again = tmp_path / "named"
    run_race(load(table), again, method=winner["method"], options=winner["options"])
    for name in ("history.jsonl", "best/model.safetensors"):
        assert (again / name).read_bytes() == (raced / name).read_bytes()


def test_the_page_of_a_run_shows_the_race(raced, tmp_path):
    write_report([raced], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    for one in race_of(raced)["candidates"]:
        row = rf"<td>{one['name']}</td>.*?{one['score']:.1f}.*?{one['cost']:.1f}.*?"
        assert re.search(row + re.escape(html.escape(one["outcome"])), text, re.DOTALL)


def test_the_race_stays_within_its_budget_and_names_every_candidate(raced):
    race = race_of(raced)
    assert 2 < race["spent"] <= race["budget"] == 2.5
    names = {one["name"] for one in race["candidates"]}
    assert {"an", "wan", "ll_r", "epr", "em 0.05", "em 0.2"} <= names
    assert sum(name.startswith("gr") for name in names) == 3
    assert all(one["outcome"] and one["score"] is not None for one in race["candidates"])
    finalists = [one for one in race["candidates"] if one["epochs"] == EPOCHS]
    best = max(finalists, key=lambda one: one["score"])
    assert len(finalists) == 3 and best["outcome"] == "winner"


def test_unobserved_labels_change_nothing(table, raced, tmp_path):
    with np.load(table) as stored:
        arrays = dict(stored)
    train = arrays["split"] == "train"
    complete = load(table)
    noise = np.where(np.random.default_rng(5).random((600, 6)) < 0.5, 1, -1).astype(np.int8)
    noise[arrays["labels"][train] == 1] = 1
    sparse = SparseLabels.from_dense(np.where(arrays["labels"][train] == 1, 1, noise))
    labels = complete.observed.with_labels(sparse)
    run_race(replace(complete, complete=labels), tmp_path / "run")
    assert content(tmp_path / "run") == content(raced)


def test_candidates_side_by_side_on_two_devices_give_the_same_bytes(table, raced, tmp_path):
    run_race(load(table), tmp_path / "run", devices=2)
    assert content(tmp_path / "run") == content(raced)


def test_a_launcher_of_several_processes_is_refused(table, tmp_path, monkeypatch):
    for name in ("TORCHELASTIC_RUN_ID", "LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    with refused("leave the launcher out"):
        run_race(load(table), tmp_path / "run")


def test_a_killed_race_resumes_to_the_same_bytes(table, raced, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-c", SCRIPT, str(table), str(out)]
    moments = {
        "race/em-0.2/last.ckpt": "1",
        "race/gr-flat-short/config.json": "2",
        "race.json": "1",
    }
    for wanted, devices in moments.items():
        process = subprocess.Popen([*command, devices], env={**os.environ, "OMP_NUM_THREADS": "1"})
        deadline = time.time() + 120
        while not (out / wanted).exists() and process.poll() is None and time.time() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, "1"], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert content(out) == content(raced)


def test_a_finished_race_is_not_repeated_and_not_overwritten_unasked(table, raced, tmp_path):
    out, data = shutil.copytree(raced, tmp_path / "run"), load(table)
    before = content(out)
    run_race(data, out, resume=True)
    assert content(out) == before
    with refused("already holds a run"):
        run_race(data, out)
    run_race(data, out, seed=1, overwrite=True)
    assert Run(out).config["seed"] == 1 and not (out / ".replaced").exists()


def test_without_a_budget_the_first_candidate_trains(table, tmp_path):
    out = tmp_path / "run"
    assert run_race(load(table), out, epochs=1, race_budget=0)["method"] == "ll_r"
    assert race_of(out)["spent"] == 0


def test_a_budget_for_it_cross_fits_every_candidate(few, tmp_path):
    out = tmp_path / "run"
    result = run_race(few, out, epochs=1, race_budget=45)
    race = race_of(out)
    best = max(race["candidates"], key=lambda one: one["score"])
    assert best["name"] == race["winner"] and best["method"] == result["method"]
    assert result["test_map"] is not None and 40 < race["spent"] <= 45
    assert all("in 5 folds" in one["outcome"] for one in race["candidates"] if one is not best)
    held = [Run(out / "race" / f"an-fold{number}").observed.val_rows for number in range(5)]
    assert sorted(np.concatenate(held)) == sorted([*few.train_rows, *few.val_rows])


def test_too_few_observed_labels_decide_nothing(few, tmp_path):
    assert run_race(few, tmp_path / "run", epochs=1)["method"] == "ll_r"
    assert "40 observed labels" in race_of(tmp_path / "run")["reason"]


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (None, {"selection": "complete"}, "which these data lack; use 'observed'"),
        (None, {"race_budget": -1}, "must not be negative"),
        (None, {"accelerator": "cuda", "devices": 99}, "--devices 99, but this machine has"),
        (None, {"method": "auto", "options": {"q3": 1.0}}, "name a method"),
        ("digits", {"method": "auto", "selection": "complete"}, "chooses by observed labels alone"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(table, tmp_path, data, settings, message):
    with refused(message):
        run_race(load(data or table), tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()
