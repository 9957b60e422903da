"""Options and steps of `spml bench` and `spml ablate`, without training."""

import json
from types import SimpleNamespace

import pytest

from spml.bench.search import Grid, Tune
from spml.cli import main
from spml.cli.commands.bench import Bench
from spml.train.resolve import data_defaults


def test_grid_rates_are_the_users_or_multiples_of_the_default(scenes):
    def search(**options):
        return Bench(data="scenes.npz", methods=("an",), **options).plan(scenes).search

    assert search(grid=True, lr=0.01) == Grid((0.004, 0.01, 0.02))
    assert search(grid=True, rates=(0.3,)) == Grid((0.3,))
    assert search(grid=True).rates[1] == data_defaults(scenes).lr
    assert search(tune=True, trials=4, lr=0.01) == Tune(4, 0.01)


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
    assert printed.out.count("a check") == lines
    assert "recorded without scores, not checked: 3 runs" in printed.err
    (tmp_path / "scores").mkdir()
    main(words)
    assert asked == [(tmp_path / "runs", tmp_path / "records"), (tmp_path / "scores", tmp_path)]


def test_a_stored_table_is_printed_in_the_requested_format(tmp_path, capsys):
    row = {"label": "an", "trials": [], "finals": [], "wanted": 1}
    stored = {"table": "bench", "data": "digits", "rows": [row], "runs": {}}
    (tmp_path / "b.json").write_text(json.dumps(stored))
    starts = {"md": "|", "csv": "row,", "tex": "%", "html": "<"}
    for name in ("text", "md", "csv", "tex", "html"):
        assert main(["bench", "--from", str(tmp_path / "b.json"), "--format", name]) == 0
        shown = capsys.readouterr().out
        assert "an" in shown and (name == "text") != (starts.get(name, "\0") in shown)
