"""tools/verdicts_check.py finds verdicts, intervals and choices that the run files do not give."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def check(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import verdicts_check

    return verdicts_check


@pytest.fixture
def spoiled(check, monkeypatch, tmp_path):
    """A function that replaces text of the page, which must be there, for the check."""
    text = check.PAGE.read_text(encoding="utf-8")

    def spoil(old, new):
        assert old in text
        (tmp_path / "page.md").write_text(text.replace(old, new), encoding="utf-8")
        monkeypatch.setattr(check, "PAGE", tmp_path / "page.md")

    return spoil


LEARNED = "k̂ and v learned"


def test_a_changed_verdict_or_interval_of_a_statement_is_found(check, spoiled, monkeypatch):
    monkeypatch.setattr(check, "STATEMENTS", {LEARNED: check.STATEMENTS[LEARNED]})
    listed = check.Listed()
    others = ["16 statements on the page, 1 here"]
    assert check.statements(listed)[0] == others
    shown = "−0.44 [−1.36, +0.49] (the paper's −0.80 lies inside), 3 seeds, one draw. | undecided |"
    spoiled(shown, shown.replace("undecided", "agrees"))
    wrong = [f"{LEARNED}: agrees on the page, undecided here", *others]
    assert check.statements(listed)[0] == wrong
    spoiled(shown, shown.replace("[−1.36, +0.49]", "[−0.59, −0.29]"))
    wrong = check.statements(listed)[0]
    assert wrong[0] == f"{LEARNED}: −0.44 [−0.59, −0.29] on the page, -0.44 [-1.36, +0.49] here"
    spoiled(shown, shown.replace("inside", "outside"))
    assert check.statements(listed)[0] == [f"{LEARNED}: −0.80 is not outside", *others]


def test_a_changed_interval_of_a_table_and_a_changed_side_are_found(check, spoiled):
    listed = check.Listed()
    assert check.tables(listed)[0] == []
    spoiled("| +0.04 [−0.43, +0.50], p = 0.817 |", "| +0.04 [+0.01, +0.50], p = 0.817 |")
    (wrong,) = check.tables(listed)[0]
    assert wrong.startswith("table-b, em: +0.04 [+0.01, +0.50] on the page")
    spoiled("above an, undecided against em", "above an, below em")
    assert check.tables(listed)[0] == ["backbone, Lite2: gr is not above an, below em"]


def test_a_changed_figure_and_a_choice_that_is_not_the_best_trial_are_found(check):
    listed = check.Listed()
    assert listed.problems() == []
    chosen = next(row for row in listed.rows if row["part"] == "chosen trial")
    listed.files[chosen["record"]]["result"]["val_map"] = 1.0
    wrong = listed.problems()
    assert f"{chosen['table']}, {chosen['row']}: the chosen trial is not the best" in wrong
    assert f"{chosen['record']}: validation mAP {chosen['validation mAP']}" in wrong
