"""A new benchmark is one reader and one entry."""

import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

SCRIPT = """
import sys
from pathlib import Path

from spml.data import benchmarks
from spml.data.readers.builder import Reading
from spml.data.readers.tabular import read_csv

def read_fifth(root, *, labels="complete"):
    return read_csv(root / "list.csv", None, Reading(labels))

benchmarks.BENCHMARKS["fifth"] = benchmarks.Benchmark(
    "fifth",
    "Fifth",
    "__main__:read_fifth",
    benchmarks.Counts(3, 16, 4, 5, 1.4, tolerance=0.3),
    steps="Ask its authors, then put list.csv into {root}.",
)
benchmarks.NAMES += ("fifth",)

from spml.cli import main

root, out = sys.argv[1:]
small = ("--backbone", "tiny", "--weights", "none", "--size", "16", "--epochs", "1")
cpu = ("--accelerator", "cpu", "--cache", "memory")
assert main(["prepare", "--help"]) == 0
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


def test_every_command_accepts_a_new_benchmark(root, tmp_path):
    environment = {**os.environ, "SPML_CACHE": str(tmp_path / "cache"), "COLUMNS": "200"}
    command = [sys.executable, "-c", SCRIPT, str(root), str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "voc|coco|nuswide|cub|fifth" in done.stdout
    assert "fifth: 3 classes, 16 / 4 / 5 images" in done.stdout
    assert "as in the paper: 16 / 4 / 5, 1.4" in done.stdout
    assert (tmp_path / "run" / "result.json").exists()
