"""Mistakes in a command line: one line that names the remedy, exit code 2, and no file."""

import json

import pytest

from tests.conftest import spml

MISTAKES = {
    "train nowhere.csv": "nowhere.csv",
    "train digitz": "digits",
    "train digits --method gg": "no method 'gg'",
    "train digits --set q4=1": "no option 'q4'",
    "train digits --set q3": "NAME=VALUE",
    "train digits --set q3=high": "'high' is not a number",
    "train digits --set eps=abc": "eps is one of a number from 0 to below 1, none, not 'abc'",
    "train digits --set w=1,2,3": "cannot be used with these options on 10 classes",
    "train digits --method an --set reduction=none": "no single number",
    "train digits --method role --set estimated=3": "only available in Python code",
    "train digits --method smile --set x=near": "only available in Python code",
    "train digits --method os:getcwd": "makes a str, not a loss",
    "train digits --accelerator cuda": "--accelerator cuda",
    "train digits --backbone vit_tiny_patch16_224 --weights none": "cannot take pictures of 40 px",
    "trian --help": "no command 'trian'; 'train'?",
    "train digits --epochs 1 --out {file}": "is a file, not a folder",
    "train digits --epochs 0": "epochs must be above 0",
    "train digits --resume --overwrite": "give one of them",
    "train digits --backbone resnet5": "no backbone 'resnet5'",
    "train digits --backbone resnet18 --weights pretrained": "--weights",
    "train voc": "--root",
    "eval nowhere": "nowhere",
    "predict nowhere a.jpg": "no model here",
    "report": "no run folder",
    "report nowhere": "nowhere",
    "report nowhere --out labels.csv": "labels.csv: give a name that ends in .html or .htm",
    "report nowhere --out page": "page: give a name that ends in .html or .htm",
    "report nowhere --pictures -1": "--pictures must be from 0 to 100, not -1",
    "report nowhere --pictures 101": "--pictures must be from 0 to 100, not 101",
    "report nowhere --against an": "--against needs several runs",
    "stats digits --out fig.gif": "--out fig.gif: give a name that ends in .svg, .png, .pdf",
    "stats digits --observe nonsense": "'nonsense' is not an observation model",
    "stats digits --labels observed --observe frequency": "draws from complete labels",
    "bench": "give DATA",
    "bench digits --methods gg": "no method 'gg'",
    "bench digits --methods an,an": "names an twice",
    "bench digits --grid --tune": "give one of them",
    "bench --from {file} --against zz": "no such row; rows: an",
    "bench digits --methods an --against zz": "no such row",
    "bench digits --resamples -1": "--resamples must be at least 0",
    "bench digits --methods an --set gr.q3=1": "METHOD.NAME=VALUE",
    "bench digits --methods an --set q3=1": "METHOD.NAME=VALUE",
    "bench digits --methods auto --set auto.q3=1": "auto sets the options of its candidates",
    "bench digits --methods gr --set gr.q4=1": "no option 'q4'",
    "bench digits --methods gr --set gr.q3=abc": "'abc' is not a number",
    "bench digits --methods an --epochs 0": "epochs must be above 0, not 0",
    "ablate digits --published --lr 0": "lr must be above 0",
    "bench digits --methods an --backbone tinny": "no backbone 'tinny'",
    "bench digits --methods an --weights gone.pth": "gone.pth",
    "bench digits --seeds 0": "--seeds must be at least 1",
    "bench --from nowhere.json": "nowhere.json",
    "bench --verify --out nowhere": "has no finished run",
    "ablate digits --published --tune": "give one of them",
    "figures": "give DATA",
    "figures --only z": "--only z: no such figure; figures: a losses",
    "figures --runs nowhere": "nowhere is not a folder",
    "figures digits --only d --epochs 0": "epochs must be above 0, not 0",
    "figures digits --jobs 0": "--jobs must be at least 1",
    "bench digits --methods an --rates 0.1": "no grid is run",
    "bench digits --methods an --tune --rates 0.1": "--rates belongs to a grid",
    "bench digits --methods an --grid --rates 0.1 0.1": "must be above 0 and distinct",
    "bench digits --methods an --grid --rates 0.1 0": "must be above 0 and distinct",
    "bench digits --methods an --grid --rates nan": "must be above 0 and distinct",
    "bench digits --methods an --trials 4": "--trials belongs to --tune",
    "bench digits --methods an --grid --trials 4": "--trials belongs to --tune",
    "bench digits --jobs 0": "--jobs must be at least 1",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_reported_in_one_line_and_leaves_no_file(
    command, tmp_path, monkeypatch, capsys
):
    table = tmp_path.with_name("bench-file.json")
    row = {"label": "an", "trials": [], "finals": [], "wanted": 1}
    table.write_text(json.dumps({"table": "bench", "data": "digits", "rows": [row], "runs": {}}))
    monkeypatch.chdir(tmp_path)
    assert spml(command.replace("{file}", str(table))) == 2
    error = capsys.readouterr().err
    assert MISTAKES[command] in error
    assert error.startswith("spml: ") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
