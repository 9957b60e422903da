"""Optuna draws equally many trials for every row, in order, and the same in every process."""

import math
import sys

import pytest

from spml import losses
from spml.bench.plan import Case, Plan
from spml.bench.rows import ablation_cases, method_cases
from spml.bench.search import Grid, Tune, ask
from spml.errors import UserError

from .conftest import done


def tuned(count, cases):
    return Plan("b", "voc", cases, (1, 2), {"epochs": 8}, Tune(count, 5e-5))


def fill(plan, known, look):
    """Record a figure for each requested run until none is left; return the counts by round."""
    rounds = []
    while new := [run for run in plan.runs(look) if run.id not in known]:
        rounds.append(len(new))
        known |= {run.id: done(val_map=int(run.id.split("-")[1], 16) % 1000 / 10) for run in new}
    return rounds


def test_trials_depend_on_results_and_are_the_same_in_every_process(outcomes):
    pytest.importorskip("optuna")
    known, look = outcomes
    plan = tuned(6, method_cases(["gr", "an"], {}))
    assert fill(plan, known, look) == [8, 2, 2, 4]
    for case in plan.cases:
        trials = plan.trials(case, look)
        assert len({run.id for run in trials}) == 6
        assert trials[0].options == {} and trials[0].settings["lr"] == 5e-5
        assert all(1e-5 <= run.settings["lr"] <= 25e-5 for run in trials)
        ask.cache_clear()  # as in another process
        assert trials == tuned(6, plan.cases).trials(case, look)
    gr = {name for run in plan.trials(plan.cases[0], look) for name in run.options}
    assert {"w", "b", "mu", "sigma"} >= gr and gr
    assert all(run.options == {} for run in plan.trials(plan.cases[1], look))


@pytest.mark.parametrize("search", [Grid((2e-5, 5e-5, 1e-4)), Tune(6, 5e-5)], ids=["grid", "tune"])
def test_a_row_with_its_own_data_is_searched_as_in_a_table_of_these_data(search, outcomes):
    pytest.importorskip("optuna")
    known, look = outcomes
    own, whole = (
        Plan("b", data, (case,), (1,), {}, search)
        for data, case in (
            ("voc", Case("em", "em", space=losses.space("em"), data="coco")),
            ("coco", Case("em", "em", space=losses.space("em"))),
        )
    )
    fill(own, known, look)
    assert [run.id for run in own.runs(look)] == [run.id for run in whole.runs(look)]


def test_later_trials_depend_on_the_figures_of_earlier_ones(outcomes):
    pytest.importorskip("optuna")
    known, look = outcomes
    plan = tuned(6, method_cases(["gr"], {}))
    first = plan.runs(look)
    drawn = set()
    for best in range(4):
        known.clear()
        known |= {
            run.id: done(val_map=90.0 if number == best else 10.0)
            for number, run in enumerate(first)
        }
        drawn.add(plan.runs(look)[4].id)
    assert len(drawn) > 1


def test_trials_move_to_settings_with_higher_figures(outcomes):
    pytest.importorskip("optuna")
    known, look = outcomes
    for sign in (1, -1):
        known.clear()
        plan = tuned(24, method_cases(["an"], {}))
        while new := [run for run in plan.trials(plan.cases[0], look) if run.id not in known]:
            known |= {
                run.id: done(val_map=50 + sign * 10 * math.log(run.settings["lr"] / 5e-5))
                for run in new
            }
        later = [
            math.log(run.settings["lr"] / 5e-5) for run in plan.trials(plan.cases[0], look)[12:]
        ]
        assert sign * sum(later) > 0


def test_rows_of_the_ablation_vary_only_their_checked_parts():
    pytest.importorskip("optuna")
    plan = tuned(4, ablation_cases(0.6849))
    free = {"k̂": {"w", "b"}, "v": {"mu", "sigma"}, "L": {"q2", "q3"}}
    for case in plan.cases[1:9]:
        allowed = set().union(*(names for part, names in free.items() if f"{part} ✓" in case.label))
        for run in plan.trials(case, lambda name: None):
            assert {
                name for name, value in run.options.items() if name not in case.options
            } <= allowed


def test_without_optuna_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr("spml.bench.search.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install -e '.\[search\]'"):
        tuned(6, ())
