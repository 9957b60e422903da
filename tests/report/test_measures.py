"""The values of a run's page: facts, groups, numbers as text, pictures."""

import base64
import io

import numpy as np
import pytest

from spml.data import LabelTable
from spml.report import format, measures
from spml.report.examples import CHANGED, Pictures, unread
from spml.report.figures import look
from spml.report.groups import Summary, group_runs
from spml.runs.run import Observed, Run

from .conftest import change, with_values


def test_label_facts_count_the_training_labels():
    train = np.array(
        [[1, 0, 0, -1], [1, 1, 0, -1], [0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], np.int8
    )
    facts = dict(format.label_facts(Observed(train, train[:2], np.arange(2), "ab12")))
    assert facts == {
        "Items in training": "5",
        "Items held out for validation": "2",
        "Observed positives": "5",
        "Observed negatives": "2",
        "Positives per item": "none: 1 item (20.0 %); one: 3 items (60.0 %); more: 1 item (20.0 %)",
        "Positives per class": "0 to 3, median 1",
        "Classes without a positive": "2",
        "SHA-256 of the labels": "ab12",
    }


def test_class_precision_names_the_labels_it_was_measured_on(make_run):
    run = Run.read(make_run(classes=("cat", "dog")))
    assert run.result is not None
    recorded = run.result | {"per_class_ap": {"cat": 50, "dog": None}}
    of = measures.class_precision
    assert vars(of(with_values(run, result=recorded))) == {
        "values": {"cat": 50.0},
        "basis": measures.ON_TEST,
    }
    recorded["test_map"] = None
    validated = of(with_values(run, result=recorded))
    assert validated is not None and validated.basis == measures.ON_VAL
    recorded["selection"] = "observed"
    observed = of(with_values(run, result=recorded))
    assert observed is not None and observed.basis == measures.ON_OBSERVED
    computed = of(with_values(run, result=None))
    assert computed.basis == measures.ON_TEST
    assert computed.values == pytest.approx(run.result["per_class_ap"])
    untested = of(with_values(run, result=None, test_truth=None))
    assert untested is not None and untested.basis == measures.ON_VAL
    assert of(with_values(run, result=None, test_truth=None, val_truth=None)) is None


def test_numbers_are_formatted_for_print():
    inf = float("inf")
    assert [format.percent(value) for value in (None, inf, 71.234)] == ["–", "not finite", "71.23"]
    assert [format.signed(value) for value in (inf, -0.004, -1)] == ["not finite", "0.00", "−1.00"]
    numbers = {None: "–", inf: "not finite", 3.25: "3.2", 3.0: "3", 99.96: "100.0", 100.4: "100"}
    assert {value: format.count(value) for value in numbers} == numbers
    assert format.count(12345.6) == "12,346"
    times = {59.9: "59.9 s", 60: "1 min 00 s", 200.4: "3 min 20 s", 3599.6: "1 h 00 min"}
    assert {value: format.duration(value) for value in times} == times
    assert (format.duration(None), format.duration(7500)) == ("–", "2 h 05 min")
    values = (None, "", "a", True, False, 0, [1, "é"])
    texts = ["none", "none", "a", "yes", "no", "0", '[1, "é"]']
    assert [format.setting(value) for value in values] == texts
    assert format.short("a" * 26) == "a" * 26 and len(format.short("a" * 27)) == 26
    assert format.file_name("x" * 18) == "x" * 18 and len(format.file_name("x" * 19)) == 18
    assert format.short("a" * 30, 11) == "aaaaa…aaaaa"
    assert format.file_name("a picture 017.jpg", 8) == "…017.jpg"
    assert format.chosen_by(["observed", "complete"]) == "figure"
    assert format.chosen_by(["complete"]) == "mAP"
    assert format.selection(None) == "labels not recorded"


def test_groups_are_ordered_by_test_and_their_runs_by_seed(make_run):
    folders = [
        make_run(f"{m}-{s}", m, s) for m, s in (("an", 10), ("an", 9), ("gr", 0), ("role", 0))
    ]
    for folder, value in zip(folders, (50.0, 52.0, 80.0, None), strict=True):
        change(folder / "result.json", test_map=value)
    groups = group_runs([Run.read(folder) for folder in folders])
    # groups that were not measured come last
    assert [group.label for group in groups] == ["gr", "an", "role"]
    assert [run.fact("seed") for run in groups[1].runs] == [9, 10]
    assert groups[1].test == Summary(51.0, pytest.approx(2**0.5), 2)
    assert groups[0].test == Summary(80.0, None, 1) and groups[2].test == Summary(None, None, 0)
    curves = [run.curve("val_map") for run in groups[1].runs]
    band = groups[1].band("val_map")
    assert band.epochs == [0, 1, 2]
    assert band.low == [min(c[e] for c in curves) for e in band.epochs]
    assert band.mean == pytest.approx([np.mean([c[e] for c in curves]) for e in band.epochs])
    groups[1].runs[0].history.pop()  # a run that has fewer epochs
    assert groups[1].band("val_map").mean[-1] == curves[1][2]


@pytest.mark.parametrize(
    "shape,shown", [((24, 12), (60, 120)), ((150, 90), (90, 150)), ((448, 112), (56, 224))]
)
def test_small_pictures_are_enlarged_and_large_ones_reduced(shape, shown):
    from PIL import Image

    x = np.zeros((1, 3, *shape), np.uint8)
    pictures = Pictures(tables={"test": LabelTable(["0"], ["a"], np.ones((1, 1), np.int8), x=x)})
    uri = pictures.uri("test", 0).removeprefix("data:image/jpeg;base64,")
    assert Image.open(io.BytesIO(base64.b64decode(uri))).size == shown
    assert pictures.uri("validation", 0) == "" and unread(pictures) is None
    assert pictures.name("validation", 3) == "row 3" and pictures.name("test", 0) == "row 0"
    assert (pictures.reason("test"), pictures.reason("validation")) == ("", CHANGED)
    assert Pictures(why_not="gone").reason("test") == "gone"
    pictures.unread += ["a.jpg: gone", "b.jpg: gone", "c.jpg: gone"]
    assert unread(pictures) == "Not every picture could be read: a.jpg: gone, and 2 more."


def test_many_methods_have_distinct_looks():
    looks = [look(number) for number in range(100)]
    assert len({(one["color"], one["linestyle"]) for one in looks[:28]}) == 28
    assert len({one["marker"] for one in looks[:12]}) == 12
