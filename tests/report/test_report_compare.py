"""The page of several runs."""

import re
import warnings

import numpy as np
import pytest

from spml.errors import UserError
from spml.report.compare_figures import dots, spread
from spml.report.format import signed
from spml.report.groups import group_runs, result_table
from spml.runs.run import Run
from tests.conftest import edit

from .conftest import assert_self_contained, outcome, page, section, text


def measured(runs, key):
    """Mean and deviation as the table prints them."""
    values = [outcome(run, key) for run in runs]
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"


def rows(runs):
    """The visible cells of the table of results."""
    table = re.search(r"<tbody>(.*?)</tbody>", page(*runs), re.DOTALL)[1]
    return [text(row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)]


def test_means_and_deviations(runs):
    groups = {"an": runs[:3], "gr": runs[3:6], "role": runs[6:]}
    means = {
        name: np.mean([outcome(run, "test_map") for run in part]) for name, part in groups.items()
    }
    order = sorted(means, key=lambda name: -means[name])
    expected = []
    for name in order:
        gap = "–" if name == "an" else signed(means[name] - means["an"])
        test, val = (measured(groups[name], key) for key in ("test_map", "val_map"))
        expected.append(f"{name} {test} {gap} {val} 3")
    assert rows(runs) == expected
    bold = re.findall(r'class="num best"[^>]*>([^<]*)<', page(*runs))
    assert len(bold) == 2 and bold[0].startswith(f"{means[order[0]]:.2f}")


@pytest.fixture
def table_of(make_run):
    """The table of runs with given figures (method, seed, test, validation); None: unfinished."""

    def of(*figures, **options):
        read = []
        for method, seed, test, val in figures:
            folder = make_run(f"{method}-{seed}", method, seed)
            edit(folder / "result.json", test_map=test, val_map=val)
            if val is None:
                (folder / "result.json").unlink()
            read.append(Run.read(folder))
        usual = {"comparable": True, "val_figure": "mAP", "selection": "complete labels"}
        return result_table(group_runs(read), **{**usual, **options})

    return of


FIGURES = (
    ("full", 0, 90.0, 80.0),
    ("gr", 0, 60.0, 71.0),
    ("role", 0, 60.001, 70.0),
    ("an", 0, 50.0, 70.0),
    ("an", 1, 52.0, 60.0),
    ("an", 2, None, None),
)


def test_the_best_printed_figures_are_bold_except_the_bound(table_of):
    table = table_of(*FIGURES)
    assert table.header == ["method", "test mAP", "test mAP − an", "validation mAP", "seeds"]
    assert table.rows == [
        ["full", "90.00", "+39.00", "80.00", "1"],
        ["role", "60.00", "+9.00", "70.00", "1"],
        ["gr", "60.00", "+9.00", "71.00", "1"],  # the same as printed
        ["an", "51.00 ± 1.41", "–", "65.00 ± 7.07", "2"],
    ]
    assert table.best == {(1, 1), (2, 1), (2, 3)}
    assert table.tags == {0: ["complete labels"], 1: [], 2: [], 3: ["1 unfinished"]}
    assert "best method trained on single labels is in bold" in table.notes[0]


@pytest.mark.parametrize(
    ("figures", "options", "best"),
    [
        (FIGURES, {"selection": None}, {(1, 1), (2, 1)}),
        (FIGURES, {"comparable": False}, set()),
        (FIGURES[1:2], {}, set()),  # one alone is not the best
    ],
    ids=["other selection", "other data", "one method"],
)
def test_only_comparable_figures_are_ranked(table_of, figures, options, best):
    table = table_of(*figures, **options)
    assert table.best == best and ("in bold" in table.notes[0]) == bool(best)
    assert ("epoch chosen on" in table.header) == (options.get("selection", "") is None)
    assert ("test mAP − an" in table.header) == (figures == FIGURES and "comparable" not in options)


def test_without_test_figures_validation_is_compared(table_of):
    table = table_of(*((method, seed, None, val) for method, seed, _, val in FIGURES[:5]))
    assert table.header[2] == "validation mAP − an"
    assert ["gr", "–", "+6.00", "71.00", "1"] in table.rows


def test_the_validation_figure_of_observed_labels_is_not_called_map(make_run):
    runs = [make_run(method, method, selection="observed") for method in ("an", "gr")]
    for run in runs:
        edit(run / "result.json", test_map=None, per_class_ap=None)
    seen = text(page(*runs))
    assert "method test mAP validation estimate − an validation estimate seeds" in seen
    assert "validation estimate, %" in seen and "only ranks runs on the same data" in seen
    assert "validation mAP" not in seen


def test_classes_runs_and_settings(runs):
    seen = text(page(*runs))
    values = [outcome(run, "per_class_ap")["seven"] for run in runs[3:6]]
    assert f"{np.mean(values):.1f}" in seen[seen.index("All 10 classes") :]
    assert "gr-2 gr 2" in seen
    common = seen[seen.index("Common to all runs") :]
    assert "backbone tiny" in common
    assert "q3" not in common.split("Commands")[0]
    assert "variant = official, q3 = 1.5" in seen[seen.index("Different between runs") :]
    assert "side_information.mean_positives" in seen
    assert "spml train digits --method an --seed 1" in seen
    assert "These runs" not in seen


def test_the_ap_of_a_class_is_the_mean_of_its_runs(make_run):
    runs = [make_run(f"an-{seed}", "an", seed, classes=("cat", "dog")) for seed in range(2)]
    for run, value in zip(runs, (10.0, 30.0), strict=True):
        edit(run / "result.json", per_class_ap={"cat": value, "dog": 2 * value})
    seen = section(page(*runs), "Classes")
    assert "dog 40.0" in seen and "cat 20.0" in seen
    other = make_run("gr", "gr", classes=("cat", "owl"))
    assert "have different classes" in section(page(*runs, other), "Classes")


def test_an_unfinished_run_hides_no_class(make_run):
    runs = [make_run(f"{m}-{seed}", m, seed) for m in ("an", "asl") for seed in range(2)]
    for run in runs[1:]:
        (run / "result.json").unlink()
        (run / "scores" / "test.npz").unlink()
    seen = section(page(*runs), "Classes")
    assert "on the test set" in seen
    assert f"zero {outcome(runs[0], 'per_class_ap')['zero']:.1f} –" in seen
    assert "on the validation set" in section(page(*runs[2:]), "Classes")


def test_the_page_is_self_contained_and_reproducible(runs):
    document = page(*runs)
    assert_self_contained(document)
    assert page(*runs) == document


def test_other_settings_are_another_row(make_run):
    runs = [make_run(f"q{q}", "gr", options={"q3": q}) for q in (1.0, 1.5)]
    assert {row.split(" ", 4)[3] for row in rows(runs)} == {"1.0", "1.5"}
    runs = [
        make_run("one", "gr", 0),
        make_run("two", "gr", 1, root="elsewhere"),
        make_run("three", "gr", 0, lr=0.01, optimizer="sgd"),
    ]
    seen = text(page(*runs))
    assert "2 variants on digits" in seen
    assert f"gr, lr = 0.001 {measured(runs[:2], 'test_map')}" in seen
    assert f"gr, lr = 0.01 {outcome(runs[2], 'test_map'):.2f}" in seen


def test_mixed_data_and_labels_cause_warnings(make_run):
    other = {"backbone": "resnet50", "observe_seed": 7, "selection": "observed"}
    document = page(make_run("one", "an"), make_run("two", "gr", data="voc", **other))
    seen = text(document)
    assert "different data sets (digits, voc)" in seen
    assert "different backbones (tiny, resnet50)" in seen
    assert "different ways to choose the epoch (complete, observed)" in seen
    assert "trained on different observed labels" in seen
    assert "epoch chosen on" in seen and "observed labels" in seen
    assert 'num best"' not in document and "mAP − an" not in seen


def test_repeated_seeds_and_folders(make_run):
    runs = [make_run(name, "gr", 0) for name in ("one", "two")]
    assert "gr: several runs have the same seed" in text(page(*runs))
    with pytest.raises(UserError, match="given twice"):
        page(runs[0], runs[0])


def test_unfinished_runs_stay_out_of_the_means(runs):
    (runs[4] / "result.json").unlink()
    seen = text(page(*runs))
    assert f"gr 1 unfinished {measured((runs[3], runs[5]), 'test_map')}" in seen
    assert "gr-1: This run has not finished" in seen


def test_many_classes_show_where_methods_differ(make_run):
    names = tuple(f"class {i:03d}" for i in range(80))
    shape = {"classes": names, "items": (200, 60, 80), "epochs": 1}
    document = page(*(make_run(method, method, **shape) for method in ("an", "gr")))
    assert "the 30 classes on which the methods differ most" in text(document)
    assert all(name in document for name in names)


@pytest.mark.parametrize("number", [2, 4, 16])
@pytest.mark.parametrize("class_name", ["cat", "a rather long name of a class"])
def test_long_names_of_variants_fit_above_the_classes(number, class_name):
    names = [f"{class_name} {c}" for c in range(4)]
    values = {
        f"gr, q2 = 0.01, mu = [0.5, {i}]": dict.fromkeys(names, 50.0 + i) for i in range(number)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the layout warns if the axes do not fit
        figure = dots(names, values, dict.fromkeys(names, 3), name="dots")
    assert figure.count("gr, q2 = 0.01,") == number


def test_labels_do_not_overlap():
    places = np.array(spread([5.0, 5.1, 5.05, 9.0], 1.0))
    assert np.diff(np.sort(places)).min() >= 1 - 1e-9
    assert list(np.argsort(places)) == [0, 2, 1, 3]
    assert places[3] == 9.0
    assert spread([1.0, 3.0], 1.0) == [1.0, 3.0]


def test_older_runs_without_sample_and_names_are_in_the_same_row(make_run):
    runs = [make_run(f"gr-{seed}", "gr", seed) for seed in range(3)]
    for run, noted in zip(runs[1:], ("a", "b"), strict=True):
        edit(run / "config.json", classes=None, sample_sha256=noted)
    assert "1 methods · 3 runs" in text(page(*runs))
    for run in runs:
        edit(run / "config.json", weights=f"of/{run.name}/lite0.pth")
    assert "1 methods · 3 runs" in text(page(*runs))
    edit(runs[0] / "config.json", weights="of/gr-0/lite2.pth")
    assert "2 variants · 3 runs" in text(page(*runs))


def test_runs_on_changed_labels_are_another_row(make_run):
    runs = [
        make_run(f"{name}-{seed}", "gr", seed, data_sha256=64 * name)
        for name in "ab"
        for seed in range(2)
    ]
    document = page(*runs)
    seen = text(document)
    assert "2 variants on digits" in seen
    assert f"gr, data_sha256 = {8 * 'a'} " in seen and f"gr, data_sha256 = {8 * 'b'} " in seen
    folded = re.sub(r"<details>.*?</details>", "", document, flags=re.DOTALL)
    assert 64 * "a" in seen and 64 * "a" not in text(folded)
