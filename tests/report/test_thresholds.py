"""Effects of thresholds, as numbers."""

import numpy as np
import pytest

from spml.model.store import TagRule
from spml.report.figures import COLOURS
from spml.report.measures import most_missed, threshold_effects
from spml.report.probabilities import Model, read_model
from spml.runs.run import Run

from .conftest import with_values

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
    assert half == ("0.50 for all", ["44.4", "66.7", "53.3", "53.3", "66.7", "100.0", "80.0"])
    assert best[0].endswith("for all, the best single one here") and best[1] == half[1]
    assert name == "stored, one per class"
    assert figures == ["38.9", "50.0", "43.3", "43.7", "60.0", "75.0", "66.7"]


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
