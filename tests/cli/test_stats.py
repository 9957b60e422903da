"""`spml stats` from the command line."""

import json
import re

import pytest

from spml.cli import main
from tests.conftest import spml


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def cells(out):
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]


def test_complete_labels(scenes_file, capsys):
    assert spml(f"stats {scenes_file} --labels complete") == 0
    out = capsys.readouterr().out
    assert ["images, training", "128"] in cells(out) and ["classes", "10"] in cells(out)
    assert "uniform (positives 1, negatives 0, seed 1200)" in out
    assert re.search(
        r"Remark 1: #\{y=1,s=0\} / #\{s=0\} = 0\.\d{4} \(\d+ missing "
        r".*b\(0\) of Assumption 1, is -\d",
        out,
    )
    assert ["positives of 10 classes", "seen", "missing", "total"] in cells(out)
    assert ["pairs, most frequent first", "items", "lift"] in cells(out)


def test_unknown_figures_of_observed_labels_are_named(pictures, capsys):
    assert spml(f"stats {pictures}") == 0
    out = capsys.readouterr().out
    assert "the true number of positives is not known" in out and "it needs complete labels" in out
    assert "Pairs of classes are not counted: no item has two known positives." in out
    assert ["red", "3"] in cells(out)


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
    assert sorted(path.name for path in out.parent.iterdir()) == [
        f"fig-pairs{suffix}",
        f"fig{suffix}",
    ]
    assert all(path.read_bytes().startswith(starts[suffix]) for path in out.parent.iterdir())
    first = out.read_bytes()
    assert json.loads(numbers.read_text())["images"]["train"] == 128
    assert main(words) == 2
    assert (
        capsys.readouterr().err
        == f"spml: {out} is already there; give --overwrite or another --out\n"
    )
    assert main([*words, "--overwrite"]) == 0 and out.read_bytes() == first
    if suffix == ".svg":
        assert b"training images: 128" in first and b"positives missing" in first


@pytest.mark.parametrize("classes", [101, 312])
def test_figures_of_many_classes(tmp_path, classes):
    """Too many classes for one bar each; the map labels only some."""
    rows = [f"{i}.jpg,c{i % classes}|c{i * i % classes}" for i in range(2 * classes)]
    (tmp_path / "many.csv").write_text("\n".join(["image,label", *rows]))
    for labels in ("complete", "observed"):
        words = ["--labels", labels, "--out", str(tmp_path / f"{labels}.svg")]
        assert main(["stats", str(tmp_path / "many.csv"), *words]) == 0
        assert (
            f"one in {-(-classes // 80)} is named" in (tmp_path / f"{labels}-pairs.svg").read_text()
        )
        assert f"{classes} classes, most frequent first" in (tmp_path / f"{labels}.svg").read_text()


def test_other_models(scenes_file, capsys):
    assert spml(f"stats {scenes_file} --labels complete --observe frequency:gamma=2") == 0
    assert "frequency (gamma 2.0, positives 1, seed 1200)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--out", "fig.gif"], "--out fig.gif: give a name that ends in .svg, .png, .pdf"),
        (["--observe", "nonsense"], "'nonsense' is not an observation model"),
        (["--observe", "frequency"], "draws from complete labels"),
    ],
)
def test_mistakes(pictures, capsys, words, part):
    assert main(["stats", str(pictures), *words]) == 2
    err = capsys.readouterr().err
    assert part in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--json", "mine.csv"], "--json"),
        (["--out", "mine.svg"], "--out"),
        (["--out", "a.svg"], "--out"),
    ],
)
def test_nothing_is_replaced_without_overwrite(pictures, tmp_path, here, capsys, words, flag):
    files = [tmp_path / name for name in ("mine.csv", "mine.svg", "a-pairs.svg")]
    for file in files:
        file.write_text("mine")
    assert main(["stats", str(pictures), *words]) == 2
    printed = capsys.readouterr()
    assert printed.err.endswith(f" is already there; give --overwrite or another {flag}\n")
    assert not printed.out
    assert all(file.read_text() == "mine" for file in files)
