"""Options that own data decide: gr's k_hat and epr's count."""

import json

import numpy as np
import pytest

from spml import losses
from spml.bench.plan import trimmed
from spml.data import Experiment, LabelTable
from spml.train import Settings, fit
from spml.train.resolve import method_options

FLAT = {"w": [0.0, 2.0], "b": [-2.0, -2.0]}
STEEP = {"w": [0.0, 10.0], "b": [-2.0, -8.0]}


def experiment(classes, rows, *, name="mine.csv", x=None, observed=1):
    """Rows that show `observed` classes each; the last 10 are for validation."""
    labels = np.zeros((rows + 10, classes), np.int8)
    for k in range(observed):
        labels[np.arange(rows + 10), (np.arange(rows + 10) + k) % classes] = 1
    items, names = [f"{row}.jpg" for row in range(rows + 10)], [f"c{c}" for c in range(classes)]
    table = LabelTable(items, names, labels, x=x)
    train, val = np.arange(rows), np.arange(rows, rows + 10)
    return Experiment(name, table.classes, table, None, train, val, None, "observed")


def vectors(rows, width=3):
    return np.random.default_rng(0).normal(size=(rows + 10, width)).astype(np.float32)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (experiment(20, 800), FLAT),
        (experiment(20, 799), STEEP),
        (experiment(21, 2100), STEEP),
        (experiment(21, 21, x=vectors(21)), FLAT),
        (experiment(80, 100, name="digits"), FLAT),
    ],
    ids=["VOC's", "few positives", "many classes", "vectors", "named data"],
)
def test_gr_takes_its_pseudo_labels_from_classes_and_observed_positives(data, expected):
    chosen = method_options("gr", data, {})
    assert {name: list(chosen[name]) for name in expected} == expected


def test_what_the_user_sets_stays_with_the_defaults_that_belong_to_it():
    chosen = method_options("gr", experiment(80, 100), {"w": (0.0, 4.0)})
    assert (chosen["w"], chosen["b"]) == ((0.0, 4.0), (-2.0, -2.0))
    assert method_options("epr", experiment(5, 20), {COUNT: 3})[COUNT] == 3


COUNT = "expected_positives"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (experiment(5, 20), 1.5),
        (experiment(5, 20, observed=2), 3.0),
        (experiment(5, 20, observed=4), 5.0),
        (experiment(5, 20, x=vectors(20)), 2.9),
        (experiment(5, 20, x=vectors(20), name="digits"), 1.5),
    ],
    ids=["one observed", "two observed", "at most all", "vectors", "named data"],
)
def test_epr_counts_from_the_observed_positives_of_an_item(data, expected):
    assert method_options("epr", data, {})[COUNT] == expected


def test_a_bench_keeps_an_option_that_own_data_would_decide_otherwise():
    assert trimmed("gr", "mine.csv", {**FLAT, "q3": 1.0}) == FLAT
    assert trimmed("gr", "digits", {**FLAT, "q3": 1.0}) == {}


def test_a_run_prints_and_records_what_the_data_decided(tmp_path, capsys):
    data = experiment(4, 40, x=vectors(40))
    for method, options in (("gr", {}), ("gr", {"w": 3.0}), ("an", {})):
        out = tmp_path / f"{method}{len(options)}"
        settings = Settings(method=method, epochs=1, accelerator="cpu")
        fit(data, settings, out, options=options)
        recorded = json.loads((out / "config.json").read_text())["options"]
        first = capsys.readouterr().out.splitlines()[0]
        shown = "gr (w 0 to 2, b -2 to -2 for 4 classes, 40 observed positives) on linear" in first
        assert shown == (method == "gr" and not options)
        assert set(recorded) == {option.name for option in losses.options(method)}
        assert method != "gr" or recorded["w"] == options.get("w", FLAT["w"])
