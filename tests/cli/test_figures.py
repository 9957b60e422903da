"""`spml figures` from the command line."""

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from spml.cli import main
from spml.data.readers import digits
from tests.conftest import spml

SMALL = "--labels complete --backbone tiny --epochs 1 --lr 0.003 --accelerator cpu"
NAMES = ("losses", "gradients", "sensitivity", "distinguishability", "assumptions", "classes")


@pytest.mark.slow
def test_all_figures_are_drawn_in_the_short_form_and_again_from_the_runs(scenes_file, here, capsys):
    words = f"figures {scenes_file} {SMALL} --short --resamples 0 --out f".split()
    assert main(words) == 0
    assert "AN, seed 0: validation" in capsys.readouterr().err
    for name in NAMES:
        ElementTree.parse(f"f/{name}.svg")
        assert Path(f"f/{name}.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads(Path(f"f/{name}.json").read_text())["figure"] == name
    study = json.loads(Path("f/sensitivity.json").read_text())
    assert study["wanting"] == ""
    assert all(point["run"] for part in study["study"] for point in part["points"])
    before = Path("f/distinguishability.json").read_text()
    assert spml("figures --runs f --only d,e --out again") == 0
    assert Path("again/distinguishability.json").read_text() == before
    suffixes = Counter(path.suffix for path in Path("again").iterdir())
    assert suffixes == {".json": 2, ".png": 2, ".svg": 2}
    assert main([*words, "--quiet"]) == 0  # nothing is trained again
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_bench_ablate_and_figures_of_digits_share_their_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(digits.SETTINGS, "digits", digits.Scenes(sizes=(128, 48, 64), size=24))
    few = f"--epochs 1 --accelerator cpu --resamples 0 --quiet --out {tmp_path}".split()
    assert main(["bench", "digits", "--methods", "an,gr", "--seeds", "1", *few]) == 0
    assert main(["ablate", "digits", "--published", "--seeds", "1", *few]) == 0
    assert len(list((tmp_path / "records").iterdir())) == 11  # AN and GR once
    assert main(["figures", "digits", "--only", "d,e,f", *few]) == 0
    assert len(list((tmp_path / "records").iterdir())) == 11
    assert {path.stem for path in tmp_path.glob("*.svg")} == set(NAMES[3:])
    assert spml(f"bench --verify --quiet --out {tmp_path}") == 0


def test_figures_that_cannot_be_drawn_are_reported_and_the_rest_drawn(here, capsys):
    Path("runs").mkdir()
    Path("runs/bad.json").write_text("{")
    words = ["figures", "--runs", "runs", "--out", "f"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "losses.svg" in shown.out and "sensitivity is not drawn: needs runs of gr" in shown.err
    assert "classes is not drawn: needs the data" in shown.err and "left out" in shown.err
    assert main([*words, "--only", "d"]) == 1


def test_runs_are_drawn_if_the_data_cannot_be_read(here, capsys):
    Path("runs").mkdir()
    assert spml(f"figures voc --root {here} --runs runs --out f") == 0
    assert str(here) in capsys.readouterr().err and Path("f/losses.svg").exists()


def test_figures_of_losses_need_no_data(here, capsys):
    assert spml("figures --only a gradients --out f --quiet") == 0
    assert capsys.readouterr().out == "" and len(list(Path("f").iterdir())) == 6


def test_a_foreign_file_is_not_replaced_without_overwrite(tmp_path, capsys):
    (tmp_path / "losses.svg").write_text("mine")
    words = ["figures", "--only", "a", "--out", str(tmp_path)]
    assert main(words) == 2
    assert "losses.svg exists" in capsys.readouterr().err
    assert (tmp_path / "losses.svg").read_text() == "mine"
    assert main([*words, "--overwrite"]) == 0
    assert main(words) == 0  # figures drawn by this command are replaced
