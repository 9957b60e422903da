"""Differences between methods on the page of several runs."""

import numpy as np
import pytest
from scipy import stats

from spml.cli import main
from spml.errors import UserError
from spml.metrics import mean_average_precision
from spml.report import write_report
from spml.report.format import signed
from tests.conftest import edit

from .conftest import outcome, page, section, text


def significance(*runs, **options):
    return section(page(*runs, **options), "Significance")


def resampled(runs):
    """mAP of each run in each resample, by the literal definition."""
    truth = np.load(runs[0] / "labels.npz")["test_truth"]
    rng = np.random.RandomState(1200)
    drawn = [rng.randint(len(truth), size=len(truth)) for _ in range(1000)]
    logits = [np.load(run / "scores" / "test.npz")["logits"].astype(np.float32) for run in runs]
    return np.array([[100 * mean_average_precision(z[r], truth[r]) for r in drawn] for z in logits])


@pytest.mark.parametrize("shared", [2, 0])
def test_significance_is_a_paired_test_over_items_and_seeds(make_run, shared):
    """Over shared seeds, here two of three; over the first two of each if none is shared."""
    classes = ("cat", "dog", "owl")
    ours = range(3) if shared else range(5, 8)
    base, own = (
        [make_run(f"{method}-{seed}", method, seed, classes=classes) for seed in seeds]
        for method, seeds in (("an", range(2)), ("gr", ours))
    )
    seen = significance(*base, *own)
    compared = own[:2]
    drawn = resampled(compared) - resampled(base)
    ours, theirs = ([outcome(run, "test_map") for run in part] for part in (compared, base))
    assert "compared with an on the same 40 test items" in seen and "1,000 times" in seen
    gap = signed(np.mean(ours) - np.mean(theirs))
    seeds = np.subtract(ours, theirs).var(ddof=1) / 2
    variance = max(seeds + max(np.cov(drawn)[0, 1], 0), drawn.mean(axis=0).var(ddof=1))
    reach = stats.t.ppf(0.975, variance**2 / seeds**2) * np.sqrt(variance)
    middle = np.mean(ours) - np.mean(theirs)
    assert f"gr {gap} {signed(middle - reach)} to {signed(middle + reach)}" in seen
    won = sum(a > b for a, b in zip(ours, theirs, strict=False))
    assert (f"{won} of 2" in seen) == bool(shared)
    gains = np.subtract(
        *(
            np.mean([list(outcome(run, "per_class_ap").values()) for run in part], axis=0)
            for part in (compared, base)
        )
    )
    assert f"{(gains > 0).sum()}, {(gains < 0).sum()}" in seen


def test_the_reference_can_be_chosen(runs, capsys):
    seen = significance(*runs, against="role")
    assert "compared with role" in seen and "mAP − role" in seen
    assert "compared with gr" in significance(*runs[3:])  # without an, that of the first run
    out = str(runs[0].parent / "y.html")
    assert main(["report", *map(str, runs), "--out", out, "--against", "asl"]) == 2
    error = capsys.readouterr().err.replace("'gr', 'role'", "'role', 'gr'")
    assert "--against asl: no method of that name; give one of 'role', " in error


@pytest.fixture
def pairs(make_run):
    """Two runs of an and of gr that differ clearly."""
    return [
        make_run(f"{method}-{seed}", method, seed, items=(60, 30, 400), epochs=1)
        for method in ("an", "gr")
        for seed in range(2)
    ]


def test_seeds_that_disagree_make_no_winner(pairs):
    assert "better 2 of 2" in significance(*pairs)
    edit(pairs[3] / "result.json", test_map=1.0)
    edit(pairs[2] / "result.json", test_map=99.0)
    assert "not significant 1 of 2" in significance(*pairs)
    assert 'class="num sure"' not in page(*pairs)


def test_other_draws_of_the_observed_labels_are_seeds_too(pairs):
    for run in pairs:
        draw = int(run.name[-1])
        model = {"model": "uniform", "positives": 1, "seed": draw}
        drawn = {"observe_seed": draw, "observation": model, "data_sha256": f"of draw {draw}"}
        edit(run / "config.json", seed=0, **drawn)
        edit(run / "result.json", seed=0)
        np.savez(run / "observed.npz", **{**np.load(run / "observed.npz"), "sha256": str(draw)})
    seen = text(page(*pairs))
    assert "2 methods on digits" in seen and "different observed labels" not in seen
    assert "different observed labels" in text(page(*pairs[:3]))
    assert "better 2 of 2" in significance(*pairs)
    edit(pairs[0] / "result.json", test_map=99.0)
    edit(pairs[1] / "result.json", test_map=0.0)
    assert "1 of 2" in significance(*pairs)


def test_the_page_explains_why_significance_is_missing(make_run):
    one, other, third = (
        make_run("one", "an"),
        make_run("two", "gr", observe_seed=7),
        make_run("three", "role"),
    )
    assert "cannot be computed: gr: other test labels than an" in significance(one, other)
    seen = significance(one, other, third)
    assert "not compared: other test labels than an" in seen and "role +" in seen
    np.savez(third / "scores" / "test.npz", logits=np.full((40, 10), np.nan, np.float16))
    assert "role: its scores hold NaN" in significance(one, third)
    (third / "scores" / "test.npz").unlink()
    assert "role: no stored test scores" in significance(one, third)
    edit(one / "result.json", test_map=None)
    assert "no complete test labels" in significance(one, third)
    same = [make_run(f"seed-{seed}", "gr", seed) for seed in range(2)]
    assert "All runs belong to one method" in significance(*same)


def test_the_reference_is_the_named_the_baseline_or_the_first(make_run):
    folders = [make_run(f"{m}-{lr}", m, lr=lr) for m, lr in (("gr", 1), ("gr", 2), ("an", 1))]
    first, second, an = folders
    assert "compared with an " in significance(first, second, an)
    assert "compared with gr, lr = 2 " in significance(second, first)  # two of gr: the first run's
    assert "compared with gr, lr = 2 " in significance(*folders, against="gr, lr = 2")
    with pytest.raises(UserError, match="several methods of that name; give one of 'gr, lr") as no:
        write_report(folders, first / "x.html", against="gr")
    assert "'an'" not in str(no.value)
