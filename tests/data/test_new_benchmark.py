"""A new benchmark is one reader and one entry: both are added to a copy of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import spml

READER = '''
"""Benchmark of a CSV file with complete labels."""

from pathlib import Path

from spml.data.readers.builder import Kind, Reading
from spml.data.readers.tabular import read_csv
from spml.data.table import LabelTable


def read_fifth(root: Path, *, labels: Kind = "complete") -> dict[str, LabelTable]:
    """Read the list of the benchmark."""
    return read_csv(root / "list.csv", None, Reading(labels))
'''
ENTRY = """    Benchmark(
        name="fifth",
        title="Fifth",
        reader="spml.data.readers.fifth:read_fifth",
        paper=Counts(3, 16, 4, 5, 1.4, tolerance=0.3),
        steps="Ask its authors, then put list.csv into {root}.",
    ),
)
BENCHMARKS = """
SCRIPT = """
import sys
from spml.cli import main
from spml.data import read
from spml.data.benchmarks import NAMES

root, out = sys.argv[1:]
assert NAMES[-1] == "fifth"
assert [len(table) for table in read("fifth", root).values()] == [20, 5]
small = ("--backbone", "tiny", "--weights", "none", "--size", "16", "--epochs", "1")
cpu = ("--accelerator", "cpu", "--cache", "memory")
for command, *options in (
    ("prepare",),
    ("check", "--min-positives", "1"),
    ("stats",),
    ("train", "--out", out, *small, *cpu),
):
    print(f"== {command}", flush=True)
    assert main([command, "fifth", "--root", root, *options]) == 0, command
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the package with a fifth benchmark."""
    source = Path(spml.__file__).parent
    package = tmp_path / "src" / "spml"
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "data" / "readers" / "fifth.py").write_text(READER.lstrip())
    benchmarks = package / "data" / "benchmarks.py"
    text = benchmarks.read_text()
    assert text.count(")\nBENCHMARKS = ") == 1
    benchmarks.write_text(text.replace(")\nBENCHMARKS = ", ENTRY))
    return package.parent


@pytest.fixture
def root(tmp_path):
    """The files of the benchmark."""
    folder = tmp_path / "fifth"
    folder.mkdir()
    random = np.random.default_rng(0)
    lines = ["image,label,split"]
    for number in range(25):
        pixels = random.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        label = ("a", "b|c", "c", "a|b", "b")[number % 5]
        lines.append(f"{number}.png,{label},{'train' if number < 20 else 'test'}")
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    return folder


def run(copy, folder, *command):
    environment = {**os.environ, "PYTHONPATH": str(copy), "SPML_CACHE": str(folder / "cache")}
    environment |= {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    process = subprocess.run(
        [sys.executable, *command], env=environment, cwd=folder, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_every_command_accepts_a_new_benchmark(copy, root, tmp_path):
    assert "fifth" in run(copy, tmp_path, "-m", "spml", "prepare", "--help")
    out = run(copy, tmp_path, "-c", SCRIPT, str(root), str(tmp_path / "run"))
    assert "fifth: 3 classes, 16 / 4 / 5 images" in out
    assert "as in the paper: 16 / 4 / 5, 1.4" in out
    assert (tmp_path / "run" / "result.json").exists()
