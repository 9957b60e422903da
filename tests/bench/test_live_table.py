"""The display during training."""

import io

import pytest
from rich.console import Console

from spml.bench.live_table import LiveTable
from spml.bench.locks import Lock
from spml.bench.plan import Case, Plan
from spml.bench.search import Grid
from spml.bench.store import RunStore

from .conftest import done


@pytest.fixture
def plan():
    return Plan("bench", "voc", (Case("gr", "gr"),), (1, 2), {}, Grid((1e-5,)))


def test_on_a_terminal_the_table_fills(plan, tmp_path):
    store, out = RunStore(tmp_path), io.StringIO()
    table = LiveTable(plan, store, console=Console(file=out, force_terminal=True, width=100))
    first, second = plan.runs(store.outcome)
    store.write(first, done())
    lock = Lock(tmp_path / "locks" / f"{second.id}.lock")
    lock.take()
    (store.run_folder(second)).mkdir(parents=True)
    (store.run_folder(second) / "config.json").write_text('{"epochs": 3}')
    for lines, epoch in ((0, 1), (2, 2), (4, 3)):  # the first line was printed before training
        (store.run_folder(second) / "history.jsonl").write_text(
            "".join(f'{{"epoch": {number}}}\n' for number in range(lines))
        )
        table.console.print(table)
        shown = out.getvalue()
        assert "1/2" in shown and "0/2" in shown and f"trial seed 0, epoch {epoch}" in shown
    assert "epoch 4" not in shown
    lock.release()
    store.write(second, {"error": "no"})
    store.write(plan.runs(store.outcome)[-1], done(test_map=61.5))
    with table.showing():
        table.update()
    assert "1 failed" in out.getvalue()
    assert "61.50" in out.getvalue()
    assert "validation" not in out.getvalue()
    store.write(plan.runs(store.outcome)[-2], done(test_map=60.5))
    table.console.print(table)
    assert "61.00 ± 0.71" in out.getvalue()


def test_without_a_test_split_the_table_fills_with_validation_figures(plan, tmp_path):
    store, out = RunStore(tmp_path), io.StringIO()
    table = LiveTable(plan, store, console=Console(file=out, force_terminal=True, width=100))
    for run in plan.runs(store.outcome):
        store.write(run, done())
    store.write(plan.runs(store.outcome)[-1], done(val_map=61.5, test_map=None))
    table.console.print(table)
    assert "61.50" in out.getvalue()
    assert "validation" in out.getvalue()
    assert "test mAP" not in out.getvalue()


def test_without_a_terminal_each_run_prints_a_line_unless_quiet(plan, tmp_path):
    store, out, none = RunStore(tmp_path), io.StringIO(), io.StringIO()
    first, second = plan.runs(store.outcome)
    store.write(first, done())
    table, quiet = (
        LiveTable(plan, store, console=Console(file=out)),
        LiveTable(plan, store, quiet=True, console=Console(file=none)),
    )
    with table.showing(), quiet.showing():
        store.write(second, {"error": "no [luck]"})
        store.write(plan.runs(store.outcome)[-1], done(test_map=None))
        table.update()
        table.update()
        quiet.update()
    assert out.getvalue().splitlines() == [
        "runs recorded before: 1",
        "gr, trial, seed 0: failed: no [luck]",
        "gr, seed 2: validation 50.00",
    ]
    assert none.getvalue() == ""
