"""`spml figures` from the command line."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from spml.cli import main
from spml.data.readers import digits

SMALL = [
    "--labels",
    "complete",
    "--backbone",
    "tiny",
    "--epochs",
    "1",
    "--lr",
    "0.003",
    "--accelerator",
    "cpu",
]
NAMES = ("losses", "gradients", "sensitivity", "distinguishability", "assumptions", "classes")


@pytest.mark.slow
def test_all_figures_are_drawn_in_the_short_form_and_again_from_the_runs(
    scenes_file, tmp_path, capsys
):
    words = [
        "figures",
        str(scenes_file),
        *SMALL,
        "--short",
        "--resamples",
        "0",
        "--out",
        str(tmp_path / "f"),
    ]
    assert main(words) == 0
    assert "AN, seed 0: validation" in capsys.readouterr().err
    for name in NAMES:
        ElementTree.parse(tmp_path / "f" / f"{name}.svg")
        assert (tmp_path / "f" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads((tmp_path / "f" / f"{name}.json").read_text())["figure"] == name
    study = json.loads((tmp_path / "f" / "sensitivity.json").read_text())
    assert study["wanting"] == "" and all(
        point["run"] for part in study["study"] for point in part["points"]
    )
    before = (tmp_path / "f" / "distinguishability.json").read_text()
    assert (
        main(
            [
                "figures",
                "--runs",
                str(tmp_path / "f"),
                "--only",
                "d,e",
                "--out",
                str(tmp_path / "again"),
            ]
        )
        == 0
    )
    assert (tmp_path / "again" / "distinguishability.json").read_text() == before
    assert sorted(path.suffix for path in (tmp_path / "again").iterdir()) == [
        ".json",
        ".json",
        ".png",
        ".png",
        ".svg",
        ".svg",
    ]
    assert main([*words, "--quiet"]) == 0  # nothing is trained again
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_bench_ablate_and_figures_of_digits_share_their_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(digits.SETTINGS, "digits", digits.Scenes(sizes=(128, 48, 64), size=24))
    few = [
        "--epochs",
        "1",
        "--accelerator",
        "cpu",
        "--resamples",
        "0",
        "--quiet",
        "--out",
        str(tmp_path),
    ]
    assert main(["bench", "digits", "--methods", "an,gr", "--seeds", "1", *few]) == 0
    assert main(["ablate", "digits", "--published", "--seeds", "1", *few]) == 0
    assert len(list((tmp_path / "records").iterdir())) == 11  # AN and GR once
    assert main(["figures", "digits", "--only", "d,e,f", *few]) == 0
    assert len(list((tmp_path / "records").iterdir())) == 11
    assert {path.stem for path in tmp_path.glob("*.svg")} == {
        "distinguishability",
        "assumptions",
        "classes",
    }
    assert main(["bench", "--verify", "--quiet", "--out", str(tmp_path)]) == 0


def test_figures_that_cannot_be_drawn_are_reported_and_the_rest_drawn(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "bad.json").write_text("{")
    words = ["figures", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "f")]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "losses.svg" in shown.out and "sensitivity is not drawn: needs runs of gr" in shown.err
    assert "classes is not drawn: needs the data" in shown.err and "left out" in shown.err
    assert main([*words, "--only", "d"]) == 1


def test_runs_are_drawn_if_the_data_cannot_be_read(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    words = [
        "figures",
        "voc",
        "--root",
        str(tmp_path),
        "--runs",
        str(tmp_path / "runs"),
        "--out",
        str(tmp_path / "f"),
    ]
    assert main(words) == 0
    assert str(tmp_path) in capsys.readouterr().err and (tmp_path / "f" / "losses.svg").exists()


def test_figures_of_losses_need_no_data(tmp_path, capsys):
    assert (
        main(["figures", "--only", "a", "gradients", "--out", str(tmp_path / "f"), "--quiet"]) == 0
    )
    assert capsys.readouterr().out == "" and len(list((tmp_path / "f").iterdir())) == 6


def test_a_foreign_file_is_not_replaced_without_overwrite(tmp_path, capsys):
    (tmp_path / "losses.svg").write_text("mine")
    words = ["figures", "--only", "a", "--out", str(tmp_path)]
    assert main(words) == 2
    assert "losses.svg exists" in capsys.readouterr().err
    assert (tmp_path / "losses.svg").read_text() == "mine"
    assert main([*words, "--overwrite"]) == 0
    assert main(words) == 0  # figures drawn by this command are replaced


BAD = {
    "no data": (["figures"], "give DATA"),
    "no such figure": (["figures", "--only", "z"], "--only z: no such figure; figures: a losses"),
    "no such folder": (["figures", "--runs", "nowhere"], "nowhere is not a folder"),
    "no epochs": (
        ["figures", "digits", "--only", "d", "--epochs", "0"],
        "epochs must be above 0, not 0",
    ),
    "no jobs": (["figures", "digits", "--jobs", "0"], "--jobs must be at least 1"),
}


@pytest.mark.parametrize("words,message", BAD.values(), ids=BAD)
def test_a_user_error_is_one_line_with_exit_code_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
