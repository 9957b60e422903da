"""The page of several runs."""

from __future__ import annotations

import html
import json
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spml.errors import UserError
from spml.report import write_report
from spml.report.compare_figures import dots, spread
from spml.report.format import file_name, short, signed

Make = Callable[..., Path]


def document(runs: Sequence[Path]) -> str:
    return write_report(runs, runs[0].parent / "report.html").read_text(encoding="utf-8")


def text(page: str) -> str:
    visible = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", visible)).split())


def outcome(run: Path, key: str) -> float:
    return json.loads((run / "result.json").read_text(encoding="utf-8"))[key]


@pytest.fixture
def runs(make_run: Make, small: dict[str, Any]) -> list[Path]:
    return [
        make_run(f"{method}-{seed}", method, seed, **small)
        for method in ("an", "gr", "role")
        for seed in range(3)
    ]


def test_means_and_deviations(runs: list[Path]) -> None:
    page = document(runs)
    seen = text(page)
    means = {}
    for start, method in ((0, "an"), (3, "gr"), (6, "role")):
        group = runs[start : start + 3]
        test, val = ([outcome(run, key) for run in group] for key in ("test_map", "val_map"))
        means[method] = np.mean(test)
        gap = "–" if method == "an" else signed(np.mean(test) - means["an"])
        cells = [f"{np.mean(test):.2f} ± {np.std(test, ddof=1):.2f}", gap]
        assert (
            " ".join([method, *cells, f"{np.mean(val):.2f} ± {np.std(val, ddof=1):.2f}", "3"])
            in seen
        )
    best = max(means, key=lambda name: means[name])
    bold = re.findall(r'class="num best">([^<]*)<', page)
    assert bold[0].startswith(f"{means[best]:.2f}")
    assert len(bold) == 2
    order = sorted(means, key=lambda name: -means[name])
    assert [seen.index(f"{name} {means[name]:.2f} ±") for name in order] == sorted(
        seen.index(f"{name} {means[name]:.2f} ±") for name in order
    )


def test_the_validation_figure_of_observed_labels_is_not_called_map(
    make_run: Make, small: dict[str, Any], edit: Any
) -> None:
    runs = [make_run(method, method, selection="observed", **small) for method in ("an", "gr")]
    for run in runs:
        edit(run / "result.json", test_map=None, per_class_ap=None)
    seen = text(document(runs))
    assert "method test mAP validation estimate − an validation estimate seeds" in seen
    assert "validation estimate, %" in seen and "only ranks runs on the same data" in seen
    assert "validation mAP" not in seen


def test_classes_runs_and_settings(runs: list[Path]) -> None:
    seen = text(document(runs))
    values = [outcome(run, "per_class_ap")["seven"] for run in runs[3:6]]  # type: ignore[index]
    assert f"{np.mean(values):.1f}" in seen[seen.index("All 10 classes") :]
    assert "gr-2 gr 2" in seen
    common = seen[seen.index("Common to all runs") :]
    assert "backbone tiny" in common
    assert "q3" not in common.split("Commands")[0]
    assert "variant = official, q3 = 1.5" in seen[seen.index("Different between runs") :]
    assert "side_information.mean_positives" in seen
    assert "spml train digits --method an --seed 1" in seen
    assert "These runs" not in seen


def test_the_page_is_self_contained_and_reproducible(runs: list[Path]) -> None:
    page = document(runs)
    bare = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert not re.search(r"https?:|@import|<script|<link", bare)
    known = re.findall(r' id="([^"]*)"', bare)
    assert len(known) == len(set(known))
    assert document(runs) == page


def test_the_upper_bound_does_not_compete(make_run: Make, small: dict[str, Any]) -> None:
    runs = [make_run(method, method, **small) for method in ("full", "gr")]
    page = document(runs)
    assert "complete labels</span>" in page
    assert f'class="num best">{outcome(runs[1], "test_map"):.2f}<' in page
    assert f'class="num best">{outcome(runs[0], "test_map"):.2f}<' not in page


def test_other_options_are_another_row(make_run: Make, small: dict[str, Any]) -> None:
    runs = [make_run(f"q{q}", "gr", options={"q3": q}, **small) for q in (1.0, 1.5)]
    seen = text(document(runs))
    assert "2 variants on digits" in seen
    assert "gr, q3 = 1.0" in seen
    assert "gr, q3 = 1.5" in seen


def test_any_other_setting_is_another_row(make_run: Make, small: dict[str, Any]) -> None:
    runs = [
        make_run("one", "gr", 0, **small),
        make_run("two", "gr", 1, root="elsewhere", **small),
        make_run("three", "gr", 0, lr=0.01, optimizer="sgd", **small),
    ]
    seen = text(document(runs))
    assert "2 variants on digits" in seen
    values = [outcome(run, "test_map") for run in runs[:2]]
    assert f"gr, lr = 0.001 {np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" in seen
    assert f"gr, lr = 0.01 {outcome(runs[2], 'test_map'):.2f}" in seen


def test_mixed_data_and_labels_cause_warnings(make_run: Make, small: dict[str, Any]) -> None:
    runs = [
        make_run("one", "an", **small),
        make_run(
            "two",
            "gr",
            data="voc",
            backbone="resnet50",
            observe_seed=7,
            selection="observed",
            **small,
        ),
    ]
    page = document(runs)
    seen = text(page)
    assert "different data sets (digits, voc)" in seen
    assert "different backbones (tiny, resnet50)" in seen
    assert "different ways to choose the epoch (complete, observed)" in seen
    assert "trained on different observed labels" in seen
    assert "epoch chosen on" in seen
    assert "observed labels" in seen
    assert 'num best"' not in page
    assert "mAP − an" not in seen


def test_repeated_seeds_and_folders(make_run: Make, small: dict[str, Any]) -> None:
    runs = [make_run(name, "gr", 0, **small) for name in ("one", "two")]
    assert "several runs have the same seed" in text(document(runs))
    with pytest.raises(UserError, match="given twice"):
        document([runs[0], runs[0]])


def test_unfinished_runs_stay_out_of_the_means(runs: list[Path]) -> None:
    (runs[4] / "result.json").unlink()
    seen = text(document(runs))
    values = [outcome(run, "test_map") for run in (runs[3], runs[5])]
    assert f"gr 1 unfinished {np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" in seen
    assert "gr-1: This run has not finished" in seen


def test_many_classes_show_where_methods_differ(make_run: Make) -> None:
    names = tuple(f"class {i:03d}" for i in range(80))
    shape = {"classes": names, "items": (200, 60, 80), "epochs": 1}
    page = document([make_run(method, method, **shape) for method in ("an", "gr")])
    assert "the 30 classes on which the methods differ most" in text(page)
    assert all(name in page for name in names)


@pytest.mark.parametrize("number", [2, 4, 16])
@pytest.mark.parametrize("class_name", ["cat", "a rather long name of a class"])
def test_long_names_of_variants_fit_above_the_classes(number: int, class_name: str) -> None:
    names = [f"{class_name} {c}" for c in range(4)]
    values = [
        (f"gr, q2 = 0.01, mu = [0.5, {i}]", dict.fromkeys(names, 50.0 + i)) for i in range(number)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the layout warns if the axes do not fit
        figure = dots(names, values, dict.fromkeys(names, 3), name="dots")
    assert figure.count("gr, q2 = 0.01,") == number


def test_labels_do_not_overlap() -> None:
    places = np.array(spread([5.0, 5.1, 5.05, 9.0], 1.0))
    assert np.diff(np.sort(places)).min() >= 1 - 1e-9
    assert list(np.argsort(places)) == [0, 2, 1, 3]
    assert places[3] == 9.0
    assert spread([1.0, 3.0], 1.0) == [1.0, 3.0]


def test_numbers_and_names_are_formatted() -> None:
    assert (signed(1.0), signed(-0.5), signed(0.001), signed(None)) == (
        "+1.00",
        "−0.50",
        "0.00",
        "–",
    )
    assert short("a" * 30, 11) == "aaaaa…aaaaa"
    assert (file_name("a/b.jpg"), file_name("a picture 017.jpg", 8)) == ("b.jpg", "…017.jpg")


def section(page: str, heading: str) -> str:
    (match,) = [
        part
        for part in re.findall(r"<section>.*?</section>", page, re.DOTALL)
        if f"<h2>{heading}" in part
    ]
    return text(match)


def resampled(runs: Sequence[Path]) -> Any:
    """Mean over runs of mAP in each resample, by the literal definition."""
    from spml.metrics import mean_average_precision

    truth = np.load(runs[0] / "labels.npz")["test_truth"]
    rng = np.random.RandomState(1200)
    rows = [rng.randint(len(truth), size=len(truth)) for _ in range(1000)]
    logits = [np.load(run / "scores" / "test.npz")["logits"].astype(np.float32) for run in runs]
    return np.array(
        [np.mean([100 * mean_average_precision(z[r], truth[r]) for z in logits]) for r in rows]
    )


@pytest.mark.parametrize("shared", [2, 0])
def test_significance_is_a_paired_bootstrap_of_the_means(
    make_run: Make, small: dict[str, Any], shared: int
) -> None:
    """Over shared seeds, here two of three; over all seeds if none is shared."""
    shape = {**small, "classes": ("cat", "dog", "owl")}
    ours = range(3) if shared else range(5, 8)
    base, own = (
        [make_run(f"{m}-{s}", m, s, **shape) for s in of]
        for m, of in (("an", range(2)), ("gr", ours))
    )
    seen = section(document([*base, *own]), "Significance")
    compared = own[:shared] or own
    low, high = np.quantile(resampled(compared) - resampled(base), (0.025, 0.975))
    means = [np.mean([outcome(run, "test_map") for run in part]) for part in (compared, base)]
    won = sum(
        outcome(own[seed], "test_map") > outcome(base[seed], "test_map") for seed in range(shared)
    )
    assert "Against an, by 1,000 resamples of the 40 test items" in seen
    assert f"gr {signed(means[0] - means[1])} {signed(low)} to {signed(high)}" in seen
    assert (f"{won} of 2" in seen) == bool(shared)
    ap = [
        np.mean([list(outcome(run, "per_class_ap").values()) for run in part], axis=0)
        for part in (compared, base)
    ]  # type: ignore[attr-defined]
    assert f"{(ap[0] > ap[1]).sum()}, {(ap[0] < ap[1]).sum()}" in seen


def test_the_reference_can_be_chosen(runs: list[Path], capsys: Any) -> None:
    from spml.cli import main

    chosen = write_report(runs, runs[0].parent / "x.html", against="role").read_text(
        encoding="utf-8"
    )
    assert "Against role" in section(chosen, "Significance") and "mAP − role" in section(
        chosen, "Significance"
    )
    assert "Against gr" in section(
        document(runs[3:]), "Significance"
    )  # without an, the method of the first run
    assert (
        main(
            ["report", *map(str, runs), "--out", str(runs[0].parent / "y.html"), "--against", "asl"]
        )
        == 2
    )
    assert (
        "--against asl: no method of that name; give one of 'role', "
        in capsys.readouterr().err.replace("'gr', 'role'", "'role', 'gr'")
    )


def test_seeds_that_disagree_make_no_winner(make_run: Make, edit: Callable[..., None]) -> None:
    runs = [
        make_run(f"{m}-{s}", m, s, items=(60, 30, 400), epochs=1)
        for m in ("an", "gr")
        for s in range(2)
    ]
    seen = section(document(runs), "Significance")
    assert "better 2 of 2" in seen
    edit(runs[3] / "result.json", test_map=1.0)
    edit(runs[2] / "result.json", test_map=99.0)
    page = document(runs)
    assert "seeds disagree 1 of 2" in section(page, "Significance")
    assert 'class="num sure"' not in page


def test_other_draws_of_the_observed_labels_are_seeds_too(
    make_run: Make, edit: Callable[..., None]
) -> None:
    runs = [
        make_run(f"{m}-{s}", m, 0, items=(60, 30, 400), epochs=1)
        for m in ("an", "gr")
        for s in range(2)
    ]
    for run in runs:
        draw = int(run.name[-1])
        model = {"model": "uniform", "positives": 1, "seed": draw}
        edit(
            run / "config.json", observe_seed=draw, observation=model, data_sha256=f"of draw {draw}"
        )
        np.savez(run / "observed.npz", **{**np.load(run / "observed.npz"), "sha256": str(draw)})
    seen = text(document(runs))
    assert "2 methods on digits" in seen and "different observed labels" not in seen
    assert "different observed labels" in text(document(runs[:3]))
    assert "better 2 of 2" in section(document(runs), "Significance")
    edit(runs[0] / "result.json", test_map=99.0)
    edit(runs[1] / "result.json", test_map=0.0)
    assert "1 of 2" in section(document(runs), "Significance")


def test_older_runs_without_sample_and_names_are_in_the_same_row(
    make_run: Make, small: dict[str, Any], edit: Callable[..., None]
) -> None:
    runs = [make_run(f"gr-{seed}", "gr", seed, **small) for seed in range(3)]
    for run, noted in zip(runs[1:], ("a", "b"), strict=True):
        edit(run / "config.json", classes=None, sample_sha256=noted)
    assert "1 methods · 3 runs" in text(document(runs))
    for run in runs:
        edit(run / "config.json", weights=f"of/{run.name}/lite0.pth")
    assert "1 methods · 3 runs" in text(document(runs))
    edit(runs[0] / "config.json", weights="of/gr-0/lite2.pth")
    assert "2 variants · 3 runs" in text(document(runs))


def test_runs_on_changed_labels_are_another_row(make_run: Make, small: dict[str, Any]) -> None:
    runs = [
        make_run(f"{name}-{seed}", "gr", seed, data_sha256=name, **small)
        for name in "ab"
        for seed in range(2)
    ]
    seen = text(document(runs))
    assert (
        "2 variants on digits" in seen
        and "gr, data_sha256 = a" in seen
        and "gr, data_sha256 = b" in seen
    )


def test_the_page_explains_why_significance_is_missing(
    make_run: Make, small: dict[str, Any], edit: Callable[..., None]
) -> None:
    runs = [make_run("one", "an", **small), make_run("two", "gr", observe_seed=7, **small)]
    assert "cannot be computed: gr: other test labels than an" in section(
        document(runs), "Significance"
    )
    third = make_run("three", "role", **small)
    seen = section(document([*runs, third]), "Significance")
    assert "not compared: other test labels than an" in seen and "role +" in seen
    (third / "scores" / "test.npz").unlink()
    assert "role: no stored test scores" in section(document([runs[0], third]), "Significance")
    edit(runs[0] / "result.json", test_map=None)
    assert "no complete test labels" in section(document([runs[0], third]), "Significance")
    same = [make_run(f"seed-{seed}", "gr", seed, **small) for seed in range(2)]
    assert "All runs belong to one method" in section(document(same), "Significance")
