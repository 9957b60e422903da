import pytest
from rich.console import Console

from spml.cli.calibrate_output import print_calibration

FIGURES = ("macro_f1", "micro_f1", "macro_precision", "macro_recall", "map", "positives_per_item")
CURVE = {"error": 0.05}


@pytest.mark.parametrize(
    ("aim", "before", "told"),
    [("f1", 0.6, None), ("f1", 0.62, "within"), ("f1", 0.7, "beyond"), ("recall=0.9", 0.7, None)],
)
def test_thresholds_that_do_no_better_than_those_before_are_told(aim, before, told, capsys):
    print_calibration(
        Console(width=120),
        {
            **{"aim": aim, "labels": "observed", "items": 50, "items_left_out": 0, "scores": "kept", "classes": []},
            "overall": {name: {"value": 0.61, "low": 0.55, "high": 0.65} for name in FIGURES},
            "overall_before": dict.fromkeys(FIGURES, before),
            **{"positives_per_item_given": None, "few_positives": []},
            "reliability": {"logits": CURVE, "calibrated": CURVE},
        },
    )
    out = capsys.readouterr().out
    assert ("lower than before" in out) == (told is not None)
    assert told is None or (f"{told} its range" in out and "--undo" in out)
