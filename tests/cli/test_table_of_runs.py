"""Options and steps of `spml bench` and `spml ablate`, without training."""

import json
import math
from types import SimpleNamespace

import pytest

from spml.bench.search import Grid, Tune
from spml.cli import main
from spml.cli.many_runs import TableOfRuns
from spml.errors import UserError


def test_rows_are_compared_with_the_requested_one_or_with_gr():
    assert (
        TableOfRuns()._against(["an", "gr"]) == "gr"
        and TableOfRuns()._against(["an", "hill"]) is None
    )
    assert TableOfRuns()._against(["AN", "k̂ ✓, v ✓, L ✓"]) == "k̂ ✓, v ✓, L ✓"
    assert TableOfRuns(against="an")._against(["an", "gr"]) == "an"
    with pytest.raises(UserError, match="--against gg: no such row; rows: an, gr"):
        TableOfRuns(against="gg")._against(["an", "gr"])


def test_grid_rates_are_the_users_or_multiples_of_the_default(scenes):
    assert TableOfRuns(lr=0.01)._grid(scenes) == Grid((0.004, 0.01, 0.02))
    assert TableOfRuns(rates=(0.3,))._grid(scenes) == Grid((0.3,))
    own = TableOfRuns()._lr(scenes)
    assert own > 0 and TableOfRuns()._grid(scenes).rates[1] == own
    assert TableOfRuns(trials=4, lr=0.01)._tune(scenes) == Tune(4, 0.01)


def test_unused_rates_and_trials_are_refused():
    grid, tune = Grid((0.1, 0.2)), Tune(4, 0.1)
    TableOfRuns(rates=(0.1, 0.2))._check_search(grid)
    TableOfRuns(trials=4)._check_search(tune)
    TableOfRuns()._check_search(None)
    for search in (None, tune):
        with pytest.raises(UserError, match="--rates belongs to a grid"):
            TableOfRuns(rates=(0.1, 0.2))._check_search(search)
    for search in (None, grid):
        with pytest.raises(UserError, match="--trials belongs to --tune"):
            TableOfRuns(trials=4)._check_search(search)
    for rates in ((0.1, 0.1), (0.1, 0.0), (-1.0,), (math.nan,)):
        with pytest.raises(UserError, match="--rates must be above 0 and distinct"):
            TableOfRuns(rates=rates)._check_search(grid)


def test_rates_without_a_grid_are_refused(scenes_file, tmp_path, capsys):
    words = [
        "--methods",
        "an",
        "--labels",
        "complete",
        "--rates",
        "0.1",
        "--out",
        str(tmp_path / "b"),
    ]
    assert main(["bench", str(scenes_file), *words]) == 2
    assert "no grid is run" in capsys.readouterr().err and not (tmp_path / "b").exists()


def test_tables_lists_every_written_file():
    assert TableOfRuns().tables() == [
        "bench.json",
        "table.md",
        "table.csv",
        "table.tex",
        "table.html",
    ]


@pytest.mark.parametrize(
    "agrees,quiet,lines,code", [(True, False, 2, 0), (True, True, 0, 0), (False, True, 1, 1)]
)
def test_verify_prints_all_checks_or_only_differences(
    tmp_path, monkeypatch, capsys, agrees, quiet, lines, code
):
    class Check(SimpleNamespace):
        def __str__(self):
            return "a check"

    asked = []
    monkeypatch.setattr(
        "spml.bench.verify.verify",
        lambda *folders: asked.append(folders) or [Check(agrees=True), Check(agrees=agrees)],
    )
    monkeypatch.setattr("spml.bench.verify.without_scores", lambda *folders: 3)
    words = ["bench", "--verify", "--out", str(tmp_path), *(["--quiet"] if quiet else [])]
    assert main(words) == code
    printed = capsys.readouterr()
    assert (
        printed.out.count("a check") == lines
        and "recorded without scores, not checked: 3 runs" in printed.err
    )
    (tmp_path / "scores").mkdir()
    main(words)
    assert asked == [(tmp_path / "runs", tmp_path / "records"), (tmp_path / "scores", tmp_path)]


def test_a_stored_table_is_printed_in_the_requested_format(tmp_path, capsys):
    row = {"label": "an", "trials": [], "finals": [], "wanted": 1}
    (tmp_path / "b.json").write_text(
        json.dumps({"table": "bench", "data": "digits", "rows": [row], "runs": {}})
    )
    starts = {"md": "|", "csv": "row,", "tex": "%", "html": "<"}
    for name in ("text", "md", "csv", "tex", "html"):
        assert main(["bench", "--from", str(tmp_path / "b.json"), "--format", name]) == 0
        shown = capsys.readouterr().out
        assert "an" in shown and (name == "text") != (starts.get(name, "\0") in shown)
