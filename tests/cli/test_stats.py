"""`spml stats` from the command line."""

import json
import re
from pathlib import Path

import pytest

from spml.cli import main
from tests.conftest import spml


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def cells(out):
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]


def test_a_benchmark_has_the_papers_column(tmp_path, capsys):
    from tests.cli.test_prepare import voc_files

    for name, text in voc_files(pictures=False).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert spml(f"stats voc --root {tmp_path}") == 0
    out = capsys.readouterr().out
    assert ["images, training", "4", "4,574"] in cells(out)
    assert ["labels per training image, negative", "18.00", "18.54"] in cells(out)


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_figures_and_numbers(scenes_file, tmp_path, capsys, suffix):
    out, numbers = tmp_path / f"new/fig{suffix}", tmp_path / "fig.json"
    words = f"stats {scenes_file} --labels complete --out {out} --json {numbers}".split()
    assert main(words) == 0
    starts = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    names = {path.name for path in out.parent.iterdir()}
    assert names == {f"fig-pairs{suffix}", f"fig{suffix}"}
    assert all(path.read_bytes().startswith(starts[suffix]) for path in out.parent.iterdir())
    first = out.read_bytes()
    assert json.loads(numbers.read_text())["images"]["train"] == 128
    assert main([*words, "--overwrite"]) == 0 and out.read_bytes() == first
    if suffix == ".svg":
        assert b"training images: 128" in first and b"positives missing" in first


@pytest.mark.parametrize("classes", [101, 312])
def test_figures_of_many_classes(here, classes):
    """Too many classes for one bar each; the map labels only some."""
    rows = [f"{i}.jpg,c{i % classes}|c{i * i % classes}" for i in range(2 * classes)]
    Path("many.csv").write_text("\n".join(["image,label", *rows]))
    for labels in ("complete", "observed"):
        assert spml(f"stats many.csv --labels {labels} --out {labels}.svg") == 0
        assert f"one in {-(-classes // 80)} is named" in Path(f"{labels}-pairs.svg").read_text()
        assert f"{classes} classes, most frequent first" in Path(f"{labels}.svg").read_text()


def test_other_models(scenes_file, capsys):
    assert spml(f"stats {scenes_file} --labels complete --observe frequency:gamma=2") == 0
    assert "frequency (gamma 2.0, positives 1, seed 1200)" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["--json mine.csv", "--out mine.svg", "--out a.svg"])
def test_nothing_is_replaced_without_overwrite(pictures, here, capsys, words):
    files = [Path(name) for name in ("mine.csv", "mine.svg", "a-pairs.svg")]
    for file in files:
        file.write_text("mine")
    assert spml(f"stats {pictures} {words}") == 2
    out, err = capsys.readouterr()
    flag = words.split()[0]
    assert out == "" and err.endswith(f" is already there; give --overwrite or another {flag}\n")
    assert all(file.read_text() == "mine" for file in files)
