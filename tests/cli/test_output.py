"""Tables as a terminal shows them, and the output of spml stats and calibrate."""

import re

import numpy as np
import pytest
from rich.console import Console

from spml.cli.output.calibrate import print_calibration
from spml.cli.output.stats import print_statistics
from spml.cli.output.tables import add_ends, columns, plain, print_results
from spml.data.statistics import Statistics
from spml.report.groups import ResultTable


def shown(table, capsys):
    Console(width=100).print(table)
    return [line for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]


@pytest.mark.parametrize("count", [5, 7])
def test_only_the_first_and_last_of_many_rows_are_printed(count, capsys):
    table = columns("class", "train", "test")
    rows = [(f"c{i}", (f"{1000 + i:,}", f"{i}")) for i in range(count)]
    add_ends(table, rows, ends=2, all_of=5)
    rows = [line.split() for line in shown(table, capsys)]
    assert rows[0] == ["class", "train", "test"]
    assert rows[1:3] == [["c0", "1,000", "0"], ["c1", "1,001", "1"]]
    assert rows[3:-2] == ([["c2", "1,002", "2"]] if count == 5 else [["...", "3", "more", "..."]])
    assert [row[0] for row in rows[-2:]] == [f"c{count - 2}", f"c{count - 1}"]


def test_numbers_are_right_aligned_and_names_are_text(capsys):
    table = columns("class", "number")
    add_ends(table, [("[red]a\x1b[31m\n", ("5",))], ends=1, all_of=3)
    (line,) = [line for line in shown(table, capsys) if "red" in line]
    assert "[red]a?[31m?" in line
    assert line.rstrip().endswith(" 5")
    assert len(line.rstrip()) > len("[red]a?[31m?  5")
    assert plain("é\u200bx\t") == "é?x?"


def test_a_table_of_results_has_its_title_rows_and_notes(capsys):
    print_results(
        ResultTable(
            "a title wider than its table, photos[new].csv",
            ["method", "mAP"],
            [["an [1]", "71.20"], ["gr", "8.10"]],
            ["one note", "two [x]"],
        )
    )
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]
    assert lines[0] == "a title wider than its table, photos[new].csv"
    assert [line.split() for line in lines[1:]] == [
        ["method", "mAP"], ["an", "[1]", "71.20"], ["gr", "8.10"], ["one", "note"], ["two", "[x]"],
    ]  # fmt: skip
    assert lines[2].rindex("0") == lines[3].rindex("0")  # figures are right-aligned


COUNTS = {
    "name": "mine.csv",
    "version": "2012",
    "classes": ["cat", "dog"],
    "images": {"train": 10, "val": 2, "test": 3},
    "seen": np.array([4, 6]),
    "negatives": np.array([0, 0]),
    "missing": np.array([4, 0]),
    "unknown": 10,
    "cooccurrence": np.array([[8, 6], [6, 6]]),
    "observation": {"model": "uniform", "positives": 1},
}


@pytest.fixture
def lines(capsys):
    def printed(**other):
        print_statistics(Console(width=160), Statistics(**COUNTS | other))
        return [
            re.split(r"\s{2,}", line.strip())
            for line in capsys.readouterr().out.splitlines()
            if line.strip(" ─")
        ]

    return printed


def test_complete_labels(lines):
    assert lines() == [
        ["mine.csv (2012)"],
        ["observed labels drawn from complete ones: uniform (positives 1)"],
        ["this data"],
        ["classes", "2"],
        ["images, training", "10"],
        ["images, validation", "2"],
        ["images, test", "3"],
        ["labels per training image, positive", "1.40"],
        ["labels per training image, negative", "0.60"],
        ["labels per training image, known positive", "1.00"],
        ["labels per training image, known negative", "0.00"],
        ["labels per training image, unknown", "1.00"],
        [
            "4 of 10 unlabelled entries (40.0 %) are positive: Remark 1's constant is 0.4000, "
            "and b(0) by Assumption 1 is -0.405."
        ],
        ["positives of 2 classes", "seen", "missing", "total"],
        ["cat", "4", "4", "8"],
        ["dog", "6", "0", "6"],
        ["pairs, most frequent first", "items", "lift"],
        ["cat + dog", "6", "1.25"],
        ["pairs of at least 5 items, highest lift first", "items", "lift"],
        ["cat + dog", "6", "1.25"],
    ]


def test_observed_labels(lines):
    printed = lines(version="", missing=None, negatives=np.array([0, 1]))
    assert printed[0] == ["mine.csv"] and not any("image, positive" in line[0] for line in printed)
    assert printed[1][0].endswith("the true number of positives is not known")
    assert any("it needs complete labels" in line[0] for line in printed)
    assert [
        "The pairs are those among the known positives; "
        "how often classes truly co-occur is not known."
    ] in printed
    at = printed.index(["positives of 2 classes", "known positives", "known negatives"])
    assert printed[at + 1 : at + 3] == [["dog", "6", "1"], ["cat", "4", "0"]]


def test_missing_counts_are_explained(lines):
    assert lines(unknown=0)[12] == ["Every entry is labelled."]
    assert lines(cooccurrence=None)[-1] == [
        "Pairs of classes are not counted: no item has two known positives."
    ]
    assert lines(missing=np.zeros(2, int))[12][0].endswith(
        "0 of 10 unlabelled entries (0.0 %) are positive."
    )


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
