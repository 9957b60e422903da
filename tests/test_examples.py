"""The scripts of examples/ run in short form and print and write what they promise."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def run(name, folder):
    """Run a script in short form, and return what it prints."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), str(folder), "--short"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    before = {path for path in EXAMPLES.rglob("*") if "__pycache__" not in path.parts}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {path for path in EXAMPLES.rglob("*") if "__pycache__" not in path.parts} == before
    return done.stdout


@pytest.mark.slow
def test_a_new_loss_ends_in_a_table_and_differences(tmp_path):
    printed = run("new_loss", tmp_path)
    assert "gradient in the last epoch: [-0.167, 0.0, 0.09]" in printed
    _, latex = printed.split("\\begin{tabular}")
    assert re.search(r"^mine:spare & \d+\.\d\d & 1 &", latex, re.MULTILINE)
    lines = re.findall(r"^(\w+) +([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]  (\w+)", latex, re.M)
    assert {line[0] for line in lines} == {"an", "em", "gr"}
    for _, difference, low, high, verdict in lines:
        assert float(low) <= float(difference) <= float(high)
        apart = "above" if float(low) > 0 else "below"
        assert verdict == (apart if float(low) * float(high) > 0 else "not")
    differences = [float(line[1]) for line in lines]
    assert differences == sorted(differences, reverse=True)
    stored = json.loads((tmp_path / "bench" / "bench.json").read_text())
    assert [row["label"] for row in stored["rows"]] == ["an", "em", "gr", "mine:spare"]


def test_the_new_loss_is_compared_with_twenty_baselines():
    from spml import losses

    text = (EXAMPLES / "new_loss.py").read_text(encoding="utf-8")
    names = re.findall(r'"(\w+)"', text.split("BASELINES = [")[1].split("]")[0])
    assert len(set(names)) == len(names) == 20 and set(names) <= set(losses.names())


@pytest.mark.slow
def test_photos_are_checked_reviewed_tagged_and_served(tmp_path):
    pytest.importorskip("uvicorn")
    printed = run("photos_to_server", tmp_path)
    assert "line 41: class 'bottel' is not in the class list" in printed
    assert "did you mean 'bottle'?" in printed
    assert "shelf/gone.jpg: no such file" in printed and "the file is cut short" in printed
    assert "left out: 1 unreadable picture, 1 missing file" in printed
    yes = int(re.search(r"(\d+) of 60 suggested tags were missing", printed)[1])
    assert f"{yes} labels and {60 - yes} known negatives added" in printed
    assert printed.count("100 written to") == printed.count("new --out") == 2
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = {Path(row["image"]).name: row for row in csv.DictReader(file)}
    assert len(rows) == 239 and "0010.jpg" not in rows
    assert "bottle" in rows["0039.jpg"]["label"].split("|")
    qualities = re.findall(r"precision (\d\.\d\d), recall (\d\.\d\d)", printed)
    assert len(qualities) == 3 and all(
        0 < float(value) <= 1 for pair in qualities for value in pair
    )
    answer = json.loads(re.search(r"^answer: (.*)$", printed, re.MULTILINE)[1])
    with (tmp_path / "second.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    assert first["tags"].split("|") == sorted(answer["tags"]) or not answer["tags"]
    assert answer["probabilities"] == pytest.approx(
        [float(first[name]) for name in answer["classes"]], abs=1e-5
    )
    assert "stopped with exit code 130" in printed


@pytest.mark.slow
def test_presence_only_records_become_probabilities_and_bias_shows(tmp_path):
    printed = run("presence_only", tmp_path)
    rows = {
        line[:13].strip(): [float(value) for value in line[13:].split()]
        for line in printed.split("truth: ")[1].splitlines()[2:6]
    }
    assert set(rows) == {"no model", "no lists", "unbiased", "conspicuous"}
    errors = {name: row[2] for name, row in rows.items()}
    assert errors["unbiased"] < min(errors["conspicuous"], errors["no model"])
    most, least = ({name: row[place] for name, row in rows.items()} for place in (4, 5))
    assert most["conspicuous"] > most["unbiased"] + 0.05
    assert least["conspicuous"] < least["unbiased"] - 0.05
    with (tmp_path / "runs" / "conspicuous.csv").open(newline="") as file:
        sites = list(csv.DictReader(file))
    assert len(sites) == 3600
    assert all(0 <= float(row["species_h"]) <= 1 for row in sites)
    assert (tmp_path / "presence_only.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("name", NAMES)
def test_an_example_opens_as_a_notebook(name):
    """Every line outside the header belongs to a cell, and markdown cells are comments."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)[1:]
    assert len(cells) >= 8
    for cell in cells:
        kind, _, body = cell.partition("\n")
        assert kind in ("", " [markdown]")
        if kind:
            assert all(line.startswith("#") for line in body.strip().splitlines())
    assert f"examples/{name}.py" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"examples/{name}.py" in (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
