import json
import re
from dataclasses import replace

import numpy as np

from spml.data import Experiment, LabelTable
from spml.files import read_json
from spml.model.store import read_info, write_info
from spml.train import Settings, fit
from spml.train.card import write_card
from tests.conftest import edit, refused


def card(run):
    return (run / "best" / "README.md").read_text(encoding="utf-8")


def test_every_run_leaves_a_card_with_its_facts(finished):
    text, result = card(finished), read_json(finished / "result.json")
    titles = (
        "Data,Method,Protocol,Figures,Classes and thresholds,Side information,Limits,Use,Versions"
    )
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == titles.split(",")
    assert text.startswith("---\nlibrary_name: spml\n")
    assert "128 training items, 48 validation items; 1.00 known positives and 0.00 known" in text
    chosen = f"Epoch {result['best_epoch']} of 3, chosen by complete validation labels: "
    assert f"{chosen}{result['val_map']:.2f} % mAP" in text
    assert f"Test mAP {result['test_map']:.2f} %" in text
    assert "Generalized Robust loss" in text and "q3 = 1.0" in text and "docs/methods/gr.md" in text
    assert "validation\\_labels: complete" in text
    for name, ap in result["per_class_ap"].items():
        assert re.search(rf"^\| {name} \| \d+ \| {ap:.2f} \| 0.5 \|$", text, re.MULTILINE)
    assert "90.0 % of its training labels are unknown" in text and "not calibrated" in text
    assert "resized to 24 × 24 pixels" in text


def test_the_card_has_no_timings(run):
    timings = {"seconds": 864209.7531, "images_per_second": 975318.642}  # appear nowhere else
    write_card(run)
    text = card(run)
    edit(run / "result.json", **timings)
    write_card(run)
    assert not any(str(value) in card(run) for value in timings.values())
    assert card(run) == text


def test_the_code_on_the_card_loads_the_model(finished, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", card(finished), re.DOTALL)
    monkeypatch.chdir(finished / "best")
    names = {}
    exec(code, names)
    assert names["info"].classes[0] == "zero" and len(code.strip().splitlines()) == 3


def test_the_card_is_rewritten_after_calibration(run):
    before = card(run)
    assert write_card(run) == run / "best" / "README.md" and card(run) == before
    info = read_info(run)
    lines = [[[-1.0, 1.0], [-2.0, 2.0]]] * 10
    write_info(run, replace(info, thresholds=[0.25] * 10, calibration=lines))
    how = {"aim": "f1", "labels": "observed", "method": "temperature"}
    (run / "calibration.json").write_text(json.dumps(how))
    write_card(run)
    assert "| 0.25 |" in card(run) and "Probabilities are calibrated" in card(run)
    assert "aim f1, labels observed, method temperature" in card(run)
    assert "not calibrated" not in card(run) and "not chosen for these data" not in card(run)


def test_missing_parts_are_stated(run):
    edit(run / "result.json", test_map=None, per_class_ap=None)
    (run / "observed.npz").unlink()
    write_card(run)
    text, head = card(run), "| class | known positives in training | threshold |\n"
    assert "The model was not tested" in text
    assert "has not been measured against complete labels" in text
    assert f"{head}|---|---|---|\n| zero | " in text
    edit(run / "config.json", observation={"model": "given"})
    write_card(run)
    text = card(run)
    assert "- The observed labels are those of the data; none was hidden." in text
    assert "Observation model" not in text
    (run / "result.json").unlink()
    write_card(run)
    assert "The run is not finished" in card(run)
    (run / "config.json").write_text("{")
    with refused(r"config.json: not JSON"):
        write_card(run)


def test_rare_classes_are_listed_long_lists_cut_and_markdown_escaped(tmp_path):
    classes = ["a|b", "*c*", *(f"class {i}" for i in range(58))]
    labels = np.zeros((600, 60), np.int8)
    labels[np.arange(600), np.r_[np.zeros(5, int), np.full(12, 1), 2 + np.arange(583) % 58]] = 1
    x = np.random.default_rng(0).normal(size=(600, 4)).astype(np.float32)
    table = LabelTable([str(i) for i in range(600)], classes, labels, x=x)
    rows = np.arange(600)
    experiment = Experiment("my\ndata_", classes, table, None, rows, rows[:0], None, "observed")
    settings = Settings(method="gr", epochs=1, selection="observed", accelerator="cpu")
    fit(experiment, settings, tmp_path / "run", quiet=True)
    text = card(tmp_path / "run")
    for part in ("# my data\\_: 60 classes by gr", "| a\\|b | 5 |", "\\*c\\*"):
        assert part in text
    assert "And 10 more" in text and "class 47 " in text and "class 48 " not in text
    assert "fewer than 10 known positives in training: a\\|b." in text
    assert "the last of 1: there were no validation rows" in text
