"""Numbers of the pages: formats, groups, class precision, effects of thresholds."""

import base64
import io

import numpy as np
import pytest

from spml.data import LabelTable
from spml.model.store import TagRule
from spml.report import format, measures
from spml.report.examples import CHANGED, Pictures
from spml.report.figures import COLOURS, look
from spml.report.groups import Summary, group_runs
from spml.report.measures import most_missed, threshold_effects
from spml.report.probabilities import Model, read_model
from spml.runs.run import Observed, Run
from tests.conftest import edit

from .conftest import with_values


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
        edit(folder / "result.json", test_map=value)
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
    assert pictures.uri("validation", 0) == ""
    assert pictures.name("validation", 3) == "row 3" and pictures.name("test", 0) == "row 0"
    assert (pictures.reason("test"), pictures.reason("validation")) == ("", CHANGED)
    assert Pictures(why_not="gone").reason("test") == "gone"


def test_many_methods_have_distinct_looks():
    looks = [look(number) for number in range(100)]
    assert len({(one["color"], one["linestyle"]) for one in looks[:28]}) == 28
    assert len({one["marker"] for one in looks[:12]}) == 12


TRUTH = np.array([[1, -1, -1], [1, 1, -1], [-1, 1, -1], [-1, -1, -1]], np.int8)
LOGITS = np.array([[2, 2, -2], [2, 0.5, -2], [-2, 2, -2], [2, -2, -2]], np.float16)


@pytest.fixture
def run(make_run):
    """Three classes; the last has no positive and gets no tag."""
    folder = make_run(classes=("cat", "dog", "owl"), items=(60, 30, 4))
    np.savez(folder / "labels.npz", **dict(np.load(folder / "labels.npz")) | {"test_truth": TRUTH})
    np.savez(folder / "scores" / "test.npz", logits=LOGITS)
    return folder


def model_at(thresholds, knots=None):
    return Model(TagRule(thresholds, knots))


def unknown(run):
    """The same run with absent labels unknown."""
    return with_values(run, test_truth=np.where(TRUTH == 1, 1, 0).astype(np.int8))


def test_each_class_at_its_own_threshold(run):
    model = model_at(np.array([0.5, 0.8, 0.5]))
    effects = threshold_effects(Run.read(run), model)
    assert effects is not None and effects["kind"] == "complete" and effects["marked"]
    # the ticks of stored thresholds
    assert all(COLOURS[2] in figure for figure in effects["figures"])
    assert effects["classes"]["rows"] == [  # best F1 first
        ("cat", ["0.500", "66.7", "100.0", "80.0", "3", "2"]),
        ("dog", ["0.800", "50.0", "50.0", "50.0", "2", "2"]),
        ("owl", ["0.500", "–", "–", "–", "0", "0"]),
    ]
    half, best, (name, figures) = effects["rows"]
    assert half == ("0.50 for all", ["44.4", "66.7", "53.3", "66.7", "100.0", "80.0"])
    assert best[0].endswith("for all, the best single one here") and best[1] == half[1]
    assert name == "stored, one per class"
    assert figures == ["38.9", "50.0", "43.3", "60.0", "75.0", "66.7"]


def test_default_thresholds_are_not_called_stored(run):
    effects = threshold_effects(Run.read(run), read_model(Run.read(run)))
    assert effects is not None and not effects["marked"] and len(effects["rows"]) == 2
    assert [figure.count("<svg") for figure in effects["figures"]] == [1, 1]
    assert not any(COLOURS[2] in figure for figure in effects["figures"])


def test_known_positives_alone_give_recall_and_tags_per_item(run):
    effects = threshold_effects(unknown(Run.read(run)), model_at(np.full(3, 0.5)))
    assert effects is not None and effects["kind"] == "known" and effects["classes"] is None
    assert effects["rows"] == [("0.50 for all", ["100.0", "1.50"])]  # six tags of four items
    calibrated = model_at(np.full(3, 0.5), knots=[[[-20.0, 20.0], [-20.0, 20.0]]] * 3)
    effects = threshold_effects(unknown(Run.read(run)), calibrated)
    assert effects is not None and effects["kind"] == "estimated"


def test_missed_classes_are_ordered_and_counted(run):
    stored = Run.read(run)
    missed = most_missed(stored, model_at(np.array([0.9, 0.7, 0.5])))
    assert missed is not None
    assert (missed["missed"], missed["total"], missed["classes"]) == ("3", "4", "2")
    cat, dog = missed["rows"]
    shown = [cat[key] for key in ("name", "share", "width", "instead", "nothing")]
    assert shown == ["cat", "100.0", 100.0, "dog (1)", "1"]
    assert (dog["name"], dog["missed"], dog["total"], dog["share"]) == ("dog", "1", "2", "50.0")
    assert dog["instead"] == "–" and missed["complete"] and missed["split"] == "test"
    missed = most_missed(unknown(stored), model_at(np.full(3, 0.5)))
    assert missed is not None and not missed["complete"]
