"""The values of a run's page: facts, groups, numbers as text, pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spml.data import LabelTable
from spml.errors import UserError
from spml.report import format, measures
from spml.report.examples import CHANGED, Pictures, unread
from spml.report.figures import look
from spml.report.groups import Summary, group_runs
from spml.report.significance import reference, significance
from spml.runs.run import Observed, Run
from tests.report.conftest import with_values

Make = Callable[..., Path]


def test_label_facts_count_the_training_labels() -> None:
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


def test_class_precision_names_the_labels_it_was_measured_on(
    make_run: Make, small: dict[str, Any]
) -> None:
    run = Run.read(make_run(classes=("cat", "dog"), **small))
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
    assert computed.basis == measures.ON_TEST  # type: ignore[union-attr]
    assert computed.values == pytest.approx(run.result["per_class_ap"])  # type: ignore[union-attr]
    untested = of(with_values(run, result=None, test_truth=None))
    assert untested is not None and untested.basis == measures.ON_VAL
    assert of(with_values(run, result=None, test_truth=None, val_truth=None)) is None


def test_numbers_are_formatted_for_print() -> None:
    inf = float("inf")
    assert [format.percent(value) for value in (None, inf, 71.234)] == ["–", "not finite", "71.23"]
    assert [format.signed(value) for value in (inf, -0.004, -1)] == ["not finite", "0.00", "−1.00"]
    assert [format.count(value) for value in (None, inf, 3.25, 3.0, 99.96, 100.4, 12345.6)] == [
        "–", "not finite", "3.2", "3", "100.0", "100", "12,346",
    ]  # fmt: skip
    seconds = (None, 59.9, 60, 200.4, 3599.6, 7500)
    assert [format.duration(one) for one in seconds] == [
        "–",
        "59.9 s",
        "1 min 00 s",
        "3 min 20 s",
        "1 h 00 min",
        "2 h 05 min",
    ]
    assert [format.setting(value) for value in (None, "", "a", True, False, 0, [1, "é"])] == [
        "none", "none", "a", "yes", "no", "0", '[1, "é"]',
    ]  # fmt: skip
    assert (
        format._brief({"q3": 1.5, "w": [0, 10]}) == "q3 = 1.5, w = [0, 10]"
        and format._brief({}) == "–"
    )
    assert format.short("a" * 26) == "a" * 26 and len(format.short("a" * 27)) == 26
    assert format.file_name("x" * 18) == "x" * 18 and len(format.file_name("x" * 19)) == 18
    assert (
        format.chosen_by(["observed", "complete"]) == "figure"
        and format.chosen_by(["complete"]) == "mAP"
    )
    assert format.selection(None) == "labels not recorded"


def test_groups_are_ordered_by_test_and_their_runs_by_seed(
    make_run: Make, small: dict[str, Any], edit: Any
) -> None:
    folders = [
        make_run(f"{m}-{s}", m, s, **small)
        for m, s in (("an", 10), ("an", 9), ("gr", 0), ("role", 0))
    ]
    for folder, value in zip(folders, (50.0, 52.0, 80.0, None), strict=True):
        edit(folder / "result.json", test_map=value)
    groups = group_runs([Run.read(folder) for folder in folders])
    assert [group.label for group in groups] == [
        "gr",
        "an",
        "role",
    ]  # groups that were not measured come last
    assert [run.fact("seed") for run in groups[1].runs] == [9, 10]
    assert groups[1].test == Summary(51.0, pytest.approx(2**0.5), 2)  # type: ignore[arg-type]
    assert groups[0].test == Summary(80.0, None, 1) and groups[2].test == Summary(None, None, 0)
    curves = [run.curve("val_map") for run in groups[1].runs]
    band = groups[1].band("val_map")
    assert band.epochs == [0, 1, 2]
    assert band.low == [min(c[e] for c in curves) for e in band.epochs]
    assert band.mean == pytest.approx([np.mean([c[e] for c in curves]) for e in band.epochs])
    groups[1].runs[0].history.pop()  # a run that has fewer epochs
    assert groups[1].band("val_map").mean[-1] == curves[1][2]


def test_the_reference_is_the_named_the_baseline_or_the_first(
    make_run: Make, small: dict[str, Any]
) -> None:
    runs = [
        Run.read(make_run(f"{m}-{lr}", m, lr=lr, **small))
        for m, lr in (("gr", 1), ("gr", 2), ("an", 1))
    ]
    groups = group_runs(runs)
    assert reference(groups, runs[0], None, "an").method == "an"
    assert reference(groups, runs[1], None, "gr").runs == [
        runs[1]
    ]  # two groups of that name: the first run's
    assert reference(groups, runs[2], "gr, lr = 2", "an").runs == [runs[1]]
    with pytest.raises(
        UserError, match="several methods of that name; give one of 'gr, lr"
    ) as refused:
        reference(groups, runs[0], "gr", "an")
    assert "'an'" not in str(refused.value)


def test_scores_that_are_not_numbers_are_not_compared(
    make_run: Make, small: dict[str, Any]
) -> None:
    runs = [make_run(method, method, **small) for method in ("an", "gr")]
    np.savez(runs[1] / "scores" / "test.npz", logits=np.full((40, 10), np.nan, np.float16))
    groups = group_runs([Run.read(run) for run in runs])
    assert (
        significance(groups, groups[0].runs[0], None, "an")["why_not"] == "gr: its scores hold NaN"
    )


@pytest.mark.parametrize(
    "shape,shown", [((24, 12), (60, 120)), ((150, 90), (90, 150)), ((448, 112), (56, 224))]
)
def test_small_pictures_are_enlarged_and_large_ones_reduced(
    shape: tuple[int, int], shown: tuple[int, int]
) -> None:
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


def test_many_methods_have_distinct_looks() -> None:
    looks = [look(number) for number in range(100)]
    assert len({(one["color"], one["linestyle"]) for one in looks[:28]}) == 28
    assert len({one["marker"] for one in looks[:12]}) == 12
