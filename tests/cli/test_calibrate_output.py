import pytest
from rich.console import Console

from spml.cli.output.calibrate import print_calibration

FIGURES = ("macro_f1", "micro_f1", "macro_precision", "macro_recall", "map", "positives_per_item")
CURVE = {"error": 0.05}
RECORD = {
    "aim": "f1",
    "labels": "observed",
    "items": 50,
    "items_left_out": 0,
    "scores": "kept",
    "classes": [],
    "overall": {name: {"value": 0.61, "low": 0.55, "high": 0.65} for name in FIGURES},
    "overall_before": dict.fromkeys(FIGURES, 0.0),
    "positives_per_item_given": None,
    "few_positives": [],
    "untagged": [],
    "below_aim": [],
    "reliability": {"logits": CURVE, "calibrated": CURVE},
}


@pytest.mark.parametrize(
    ("aim", "before", "place"),
    [("f1", 0.6, None), ("f1", 0.62, "within"), ("f1", 0.7, "beyond"), ("recall=0.9", 0.7, None)],
)
def test_thresholds_no_better_than_the_previous_ones_are_reported(aim, before, place, capsys):
    record = {**RECORD, "aim": aim, "overall_before": dict.fromkeys(FIGURES, before)}
    print_calibration(Console(width=120), record)
    out = capsys.readouterr().out
    assert ("lower than before" in out) == (place is not None)
    assert place is None or (f"{place} its range" in out and "--undo" in out)


def test_classes_without_tags_have_no_precision_and_are_named(capsys):
    zero = {"value": 0.0, "low": 0.0, "high": 0.0}
    figures = dict.fromkeys(("prior", "threshold", "precision", "recall", "f1"), zero)
    changes = {
        "aim": "precision=0.97",
        "labels": "complete",
        "classes": [{"name": name, "known_positives": 9, **figures} for name in ("owl", "hen")],
        "overall": dict.fromkeys(FIGURES, zero),
        "untagged": ["owl"],
        "below_aim": ["hen"],
    }
    print_calibration(Console(width=200), RECORD | changes)
    out = capsys.readouterr().out
    assert "precision=0.97: no validation item reaches the threshold of these classes" in out
    assert "new items are tagged from probability 0.97 on: owl (1)\n" in out
    assert "these classes miss precision=0.97 on the validation items: hen (1)\n" in out
    lines = [line.split() for line in out.splitlines() if line.startswith((" owl", " hen"))]
    cells = {first: rest for first, *rest in lines}
    assert cells["owl"][3:] == ["–", "0.0±0.0", "0.0±0.0"]
    assert cells["hen"][3:] == ["0.0±0.0"] * 3
