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

from spml.data import load
from spml.errors import UserError
from spml.report.run_page import write_report
from spml.runs.run import Run
from spml.train import Settings, fit

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


@pytest.fixture(scope="module")
def raced(table, tmp_path_factory):
    """A finished race."""
    out = tmp_path_factory.mktemp("race") / "run"
    fit(load(table), Settings(epochs=EPOCHS, accelerator="cpu"), out, quiet=True)
    return out


def content(folder):
    return {name: (folder / name).read_bytes() for name in SAME}


def test_the_folder_is_the_run_of_the_winner(raced, table, tmp_path):
    run = Run(raced)
    race = json.loads((raced / "race.json").read_text())
    winner = next(one for one in race["candidates"] if one["outcome"] == "winner")
    assert race["winner"] == winner["name"] == run.config["race"]["winner"]
    assert run.config["method"] == run.require_result()["method"] == winner["method"]
    assert run.require_result()["test_map"] is not None
    again = tmp_path / "named"
    settings = Settings(method=winner["method"], epochs=EPOCHS, accelerator="cpu")
    fit(load(table), settings, again, options=winner["options"], quiet=True)
    for name in ("history.jsonl", "best/model.safetensors"):
        assert (again / name).read_bytes() == (raced / name).read_bytes()


def test_the_page_of_a_run_shows_the_race(raced, tmp_path):
    write_report([raced], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    for one in json.loads((raced / "race.json").read_text())["candidates"]:
        row = rf"<td>{one['name']}</td>.*?{one['score']:.1f}.*?{one['cost']:.1f}.*?"
        assert re.search(row + re.escape(html.escape(one["outcome"])), text, re.DOTALL)


def test_the_race_stays_within_its_budget_and_names_every_candidate(raced):
    race = json.loads((raced / "race.json").read_text())
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
    labels = complete.observed.with_labels(
        load_sparse(np.where(arrays["labels"][train] == 1, 1, noise))
    )
    out = tmp_path / "run"
    settings = Settings(epochs=EPOCHS, accelerator="cpu")
    fit(replace(complete, complete=labels), settings, out, quiet=True)
    assert content(out) == content(raced)


def test_candidates_side_by_side_on_two_devices_give_the_same_bytes(table, raced, tmp_path):
    out = tmp_path / "run"
    settings = Settings(epochs=EPOCHS, accelerator="cpu", devices=2)
    fit(load(table), settings, out, quiet=True)
    assert content(out) == content(raced)


def test_a_launcher_of_several_processes_is_refused(table, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="leave the launcher out"):
        fit(load(table), Settings(epochs=EPOCHS, accelerator="cpu"), tmp_path / "run", quiet=True)


def load_sparse(labels):
    from spml.data import SparseLabels

    return SparseLabels.from_dense(labels)


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
    out = tmp_path / "run"
    shutil.copytree(raced, out)
    before = content(out)
    settings = Settings(epochs=EPOCHS, accelerator="cpu")
    fit(load(table), settings, out, resume=True, quiet=True)
    assert content(out) == before
    with pytest.raises(UserError, match="already holds a run"):
        fit(load(table), settings, out, quiet=True)
    fit(load(table), replace(settings, seed=1), out, overwrite=True, quiet=True)
    assert Run(out).config["seed"] == 1 and not (out / ".replaced").exists()


def test_without_a_budget_the_first_candidate_trains(table, tmp_path):
    out = tmp_path / "run"
    settings = Settings(epochs=1, accelerator="cpu", race_budget=0)
    assert fit(load(table), settings, out, quiet=True)["method"] == "ll_r"
    assert json.loads((out / "race.json").read_text())["spent"] == 0


def test_a_budget_for_it_cross_fits_every_candidate(table, tmp_path):
    few = load(table)
    few = replace(few, train_rows=few.train_rows[:100], val_rows=few.val_rows[:40])
    out = tmp_path / "run"
    settings = Settings(epochs=1, accelerator="cpu", race_budget=45)
    result = fit(few, settings, out, quiet=True)
    race = json.loads((out / "race.json").read_text())
    best = max(race["candidates"], key=lambda one: one["score"])
    assert best["name"] == race["winner"] and best["method"] == result["method"]
    assert result["test_map"] is not None and 40 < race["spent"] <= 45
    assert all("in 5 folds" in one["outcome"] for one in race["candidates"] if one is not best)
    held = [Run(out / "race" / f"an-fold{number}").observed.val_rows for number in range(5)]
    assert sorted(np.concatenate(held)) == sorted([*few.train_rows, *few.val_rows])


def test_too_few_observed_labels_decide_nothing(table, tmp_path):
    few = load(table)
    few = replace(few, train_rows=few.train_rows[:100], val_rows=few.val_rows[:40])
    out = tmp_path / "run"
    assert fit(few, Settings(epochs=1, accelerator="cpu"), out, quiet=True)["method"] == "ll_r"
    assert "40 observed labels" in json.loads((out / "race.json").read_text())["reason"]


@pytest.mark.parametrize(
    ("settings", "options", "says"),
    [
        (Settings(selection="complete"), {}, "which these data lack; use 'observed'"),
        (Settings(race_budget=-1), {}, "must not be negative"),
        (Settings(accelerator="cuda", devices=99), {}, "--devices 99, but this machine has"),
        (Settings(method="auto"), {"q3": 1.0}, "name a method"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(table, tmp_path, settings, options, says):
    out = tmp_path / "run"
    with pytest.raises(UserError, match=says):
        fit(load(table), settings, out, options=options, quiet=True)
    assert not out.exists()


def test_complete_labels_do_not_decide_a_race(tmp_path):
    settings = Settings(method="auto", selection="complete")
    with pytest.raises(UserError, match="chooses by observed labels alone"):
        fit(load("digits"), settings, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
