"""The entries of the benchmarks, the comparison of files with them, and a new entry."""

import hashlib
import os
import re
import subprocess
import sys
from pkgutil import resolve_name
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets.voc import DATASET_YEAR_DICT

from spml.data import LabelTable, observe
from spml.data.benchmarks import (
    BENCHMARKS,
    ENTRIES,
    NAMES,
    differences,
    missing_pictures,
    observed_sha256,
    paper_counts,
)
from spml.data.experiment import Experiment, split
from spml.data.observation import draw

HOSTS = {"host.robots.ox.ac.uk", "thor.robots.ox.ac.uk"}
HOSTS |= {"images.cocodataset.org", "data.caltech.edu"}
ALL = [archive for entry in ENTRIES for archive in entry.archives]


@pytest.mark.parametrize("archive", ALL, ids=lambda archive: archive.name)
def test_archives(archive):
    algorithm, digest = archive.digest.split(":")
    assert len(digest) == 2 * hashlib.new(algorithm).digest_size and int(digest, 16)
    assert {urlsplit(address).hostname for address in archive.addresses} <= HOSTS
    assert all(urlsplit(address).path.endswith(f"/{archive.name}") for address in archive.addresses)
    assert archive.size < archive.unpacked


def test_the_checksum_of_voc_is_torchvisions():
    (archive,) = BENCHMARKS["voc"].archives
    assert archive.digest == f"md5:{DATASET_YEAR_DICT['2012']['md5']}"
    assert archive.name == DATASET_YEAR_DICT["2012"]["filename"]
    assert DATASET_YEAR_DICT["2012"]["url"] in archive.addresses


def test_the_split_of_the_lists_gives_the_papers_sizes():
    for counts in map(paper_counts, NAMES):
        train, val = split(counts.train + counts.val)
        assert (len(train), len(val)) == (counts.train, counts.val)


def experiment(name, listed, tested, classes, positives):
    """An experiment with `positives` per row, which may be a fraction."""
    labels = np.full((listed, classes), -1, np.int8)
    number = np.floor((np.arange(listed) + 1) * positives) - np.floor(np.arange(listed) * positives)
    labels[np.arange(classes) < number[:, None]] = 1
    names = [f"c{i}" for i in range(classes)]
    table = LabelTable([f"{i}.jpg" for i in range(listed)], names, labels)
    test, seen = table.take(np.arange(tested) % listed), table.with_labels(draw(table.sparse))
    return Experiment(name, names, seen, table, *split(listed), test, "complete")


def test_files_that_match_the_paper_have_no_differences():
    assert differences(BENCHMARKS["voc"], experiment("voc", 5717, 5823, 20, 1.46)) == []
    assert differences(BENCHMARKS["cub"], experiment("cub", 5994, 5794, 312, 31.5)) == []


@pytest.mark.parametrize(
    ("name", "counts", "pattern"),
    [
        ("voc", (5717, 5823, 20, 1.6), "1.60 positives per .* has 1.46: other label files"),
        ("voc", (2501, 5823, 20, 1.46), "2,501 images in the train list, .* has 5,717: VOC2007"),
        ("voc", (5717, 5822, 20, 1.46), "5,822 images in the test list, .* 5,823: another version"),
        ("voc", (5717, 5823, 21, 1.46), "21 classes, the paper has 20"),
        ("nuswide", (161789, 107859, 81, 1.89), "161,789 images.* official lists, numbers will"),
        ("coco", (82783, 40504, 80, 2.9), "82,783 images in .* has 82,081: all images.*\n.*40,504"),
    ],
)
def test_differences_are_explained(name, counts, pattern):
    text = "\n".join(differences(BENCHMARKS[name], experiment(name, *counts)))
    assert re.search(pattern, text)


def test_hashes_are_of_separate_draws():
    data = experiment("voc", 50, 30, 20, 3)
    expected = (observe(data.test.labels) == 1).tobytes()
    expected = {"train": data.sha256, "test": hashlib.sha256(expected).hexdigest()}
    assert observed_sha256(data) == expected
    assert set(BENCHMARKS["voc"].observed_sha256) == {"train", "test"}


def test_missing_pictures(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").touch()
    (tmp_path / "3.jpg").mkdir()
    items = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "3.jpg"]
    table = LabelTable(items, ["x"], np.ones((4, 1)), root=tmp_path)
    expected = [tmp_path / "a/2.jpg", tmp_path / "b/1.jpg", tmp_path / "3.jpg"]
    assert missing_pictures([table]) == expected


def test_the_steps_for_nuswide_name_the_files_that_are_read():
    text = BENCHMARKS["nuswide"].steps.format(root="here")
    lists = ("formatted_train_images.npy", "formatted_val_labels.npy", "ImageList", "Groundtruth")
    assert all(name in text for name in (*lists, "here/Flickr"))


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_the_functions_of_an_entry_exist(entry):
    for path in filter(None, (entry.reader, entry.versioned, entry.boxes)):
        assert callable(resolve_name(path))
    assert bool(entry.archives) != bool(entry.steps)


def test_data_outside_the_paper_have_no_counts():
    assert paper_counts("photos.csv") is None and paper_counts("digits") is None


SCRIPT = """
import sys
from pathlib import Path

from spml.data import benchmarks
from spml.data.readers.builder import Reading
from spml.data.readers.tabular import read_table

def read_fifth(root, *, labels="complete"):
    return read_table(root / "list.csv", None, Reading(labels))

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
