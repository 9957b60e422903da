"""Runs of a table: ids, grids, choices, final runs that wait for their trials, and Table 3."""

import dataclasses

import pytest
import torch

from spml import losses
from spml.bench.plan import Case, Plan
from spml.bench.published import ABLATION, TABLE_2
from spml.bench.rows import ablation_cases, method_cases, observed_share, paper_methods
from spml.bench.search import Grid, Tune, between
from spml.losses.metadata import plain

from .conftest import done

RATES = (2e-5, 5e-5, 1e-4)


def run_of(method, options=None, data="voc", settings=None):
    """The only run of a plan with one row."""
    plan = Plan("t", data, (Case("row", method, options or {}),), (0,), settings or {})
    (run,) = plan.runs(no_record)
    return run


def no_record(name):
    """No run has ended."""


def test_the_same_training_has_the_same_id_in_every_table():
    run = run_of("gr", settings={"epochs": 8, "size": 448})
    case = Case("another", "gr", {"w": [0, 2], "variant": "official"})
    (other,) = Plan("other", "voc", (case,), (0,), {"size": 448, "epochs": 8.0}).runs(no_record)
    assert other.id == run.id
    assert run.id.startswith("gr-") and run.id.endswith("-0")
    assert run.plain()["id"] == run.id
    assert set(run.plain()) > {"table", "data", "method", "options", "settings", "seed"}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"data": "coco"},
        {"method": "an"},
        {"options": {"q3": 1.5}},
        {"settings": {"epochs": 9}},
    ],
)
def test_every_change_of_training_changes_the_id(change):
    run = run_of("gr", settings={"epochs": 8})
    assert dataclasses.replace(run, **change).id != run.id


def test_a_custom_method_gets_a_new_id_when_its_file_changes(tmp_path, monkeypatch):
    file = tmp_path / "changing.py"
    text = "def loss(logits, observed, q=1.0):\n    return logits.sum()\n"
    monkeypatch.syspath_prepend(tmp_path)

    def run_id(text):
        file.write_text(text)
        losses.code.cache_clear()  # as in another process
        return run_of("changing:loss", data="digits").id

    assert run_id(text) == run_id(text) != run_id(text.replace("sum", "mean"))
    assert run_id(text).replace("-", "").replace("_", "").isalnum()  # a file name everywhere
    assert losses.code("gr") is None  # built-in methods are identified by the version of spml


def test_published_options_are_left_out_of_a_run():
    assert run_of("em", {"alpha": 0.2, "eps": 1e-5}).options == {"eps": 1e-5}
    assert run_of("em", {"alpha": 0.2}, "coco").options == {"alpha": 0.2}
    assert run_of("ll_r", {"delta": 0.002}, "voc@jpeg88-448").options == {}


def test_a_grid_combines_rates_with_published_and_alternative_options():
    methods = paper_methods()
    plan = Plan("b", "voc", method_cases(methods, {}), (1, 2, 3), {}, Grid(RATES))
    for case in plan.cases:
        trials = plan.trials(case, no_record)
        assert len({run.id for run in trials}) == len(trials) == 6
        assert all(run.seed == 0 and run.stage == "trial" for run in trials)
        assert plan.finals(case, no_record) == []
        if case.space.alternatives:
            assert sorted({run.settings["lr"] for run in trials}) == sorted(RATES)
            assert [run.options for run in trials[:3]] == [{}] * 3
            assert all(run.options for run in trials[3:])


def test_a_row_without_an_alternative_has_more_rates():
    plan = Plan("b", "voc", (Case("gr", "gr"),), (1,), {}, Grid(RATES))
    rates = [run.settings["lr"] for run in plan.runs(no_record)]
    assert rates == [*RATES, 3.2e-5, 7.1e-5, 2e-4]
    assert between((1e-3,)) == [2e-3] and between((1e-4, 4e-4)) == [2e-4, 1.6e-3]


@pytest.mark.parametrize("search", [Grid((2e-5, 5e-5)), Tune(8, 5e-5)], ids=["grid", "tune"])
def test_an_option_set_by_the_user_is_not_varied(search):
    pytest.importorskip("optuna")
    options = {"em": {"alpha": 0.3}, "hill": {"variant": "gr"}, "gr": {"w": (0.0, 5.0)}}
    plan = Plan("b", "mine.npz", method_cases(list(options), options), (1,), {}, search)
    for case in plan.cases:
        trials, _ = search.trials(plan, case, lambda name: done())
        assert all(
            plain(run.options[name]) == plain(value)
            for run in trials
            for name, value in case.options.items()
        )
        assert len({run.id for run in trials}) == (4 if isinstance(search, Grid) else 8)
    if isinstance(search, Tune):
        # the others are varied as before
        assert {"mu", "q3"} & {name for run in trials for name in run.options}


def test_a_row_may_have_its_own_data():
    rows = Case("a", "em", {"alpha": 0.2}), Case("b", "em", {"alpha": 0.2}, data="coco")
    runs = Plan("t", "voc", rows, (0,)).runs(no_record)
    assert [(run.data, run.options) for run in runs] == [("voc", {}), ("coco", {"alpha": 0.2})]


def test_final_runs_have_new_seeds_and_the_settings_of_the_best_trial(outcomes):
    known, look = outcomes
    case = Case("em", "em", space=losses.space("em"))
    plan = Plan("b", "voc", (case,), (1, 2, 3), {"epochs": 8}, Grid(RATES))
    trials = plan.runs(look)
    for number, run in enumerate(trials[:-1]):
        known[run.id] = done(val_map=[1.0, 3.0, 3.0, 2.0, 0.5][number])
    assert plan.growing(look) and plan.runs(look) == trials
    known[trials[-1].id] = {"error": "lost"}
    assert not plan.growing(look)
    assert plan.chosen(plan.cases[0], look) == trials[1]
    finals = plan.finals(plan.cases[0], look)
    assert [run.seed for run in finals] == [1, 2, 3] and {run.stage for run in finals} == {"final"}
    best = (trials[1].options, trials[1].settings)
    assert all((run.options, run.settings) == best for run in finals)


def test_a_row_whose_trials_all_fail_has_no_final_runs(outcomes):
    known, look = outcomes
    plan = Plan("b", "voc", (Case("em", "em"),), (1,), {}, Grid(RATES))
    known |= {run.id: {"error": "lost"} for run in plan.runs(look)}
    assert plan.finals(plan.cases[0], look) == [] and not plan.growing(look)


def test_the_methods_of_the_paper_exist_and_keep_its_order():
    assert paper_methods() == list(TABLE_2) and set(TABLE_2) <= set(losses.names())


def test_the_rows_are_those_of_the_paper_and_one_more():
    cases = ablation_cases(0.6849)
    labels = [case.label for case in cases]
    assert [label for label in labels if label in ABLATION] == list(ABLATION)
    assert [label for label in labels if label not in ABLATION] == [
        "k̂ ✗, v ✗, L ✗",
        "k̂ of Eq. (kx), v ✓, L ✓",
    ]
    assert cases[-1].options == {"a": 0.6849}
    assert [case.method for case in cases if case.method != "gr"] == ["an", "gr_learnable"]
    assert len(ablation_cases(None)) == len(cases) - 1


def test_crosses_use_the_constants_of_the_caption_and_all_checks_is_gr():
    options = {case.label: case.options for case in ablation_cases(None)}
    robust = {"q1": 0.01, "q2": 0.01, "q3": 0.01}
    assert options["k̂ ✗, v ✗, L ✗"] == {"khat": False, "v": False, **robust}
    assert options["k̂ ✓, v ✗, L ✓"] == {"v": False}
    assert options["k̂ ✗, v ✓, L ✗"] == {"khat": False, **robust}
    assert options["k̂ ✓, v ✓, L ✓"] == {}


def test_all_crosses_is_nearly_assume_negative():
    z, s = torch.linspace(-3, 3, 20).view(4, 5), torch.eye(4, 5)
    crosses = next(case.options for case in ablation_cases(None) if case.label == "k̂ ✗, v ✗, L ✗")
    assert losses.create("gr", **crosses)(z, s).item() == pytest.approx(
        losses.create("an")(z, s).item(), rel=0.03
    )


def test_the_share_of_observed_positives_is_one_over_their_number(scenes, pictures):
    from spml.data import load

    positives = (scenes.complete.labels[scenes.train_rows] == 1).sum() / len(scenes.train_rows)
    assert observed_share(scenes) == pytest.approx(1 / positives, abs=1e-4)
    assert observed_share(load(pictures)) is None
