"""What is seen while runs are made."""

import io

import pytest
from rich.console import Console

from spml.bench.locks import Lock
from spml.bench.plan import Case, Plan
from spml.bench.search import Grid
from spml.bench.shelf import Shelf
from spml.bench.watch import Watch

from .conftest import done


@pytest.fixture
def plan():
    return Plan("bench", "voc", (Case("gr", "gr"),), (1, 2), {}, Grid((1e-5,)))


def test_on_a_terminal_the_table_fills(plan, tmp_path):
    shelf, out = Shelf(tmp_path), io.StringIO()
    watch = Watch(plan, shelf, console=Console(file=out, force_terminal=True, width=100))
    first, second = plan.runs(shelf.outcome)
    shelf.write(first, done())
    lock = Lock(tmp_path / "locks" / f"{second.id}.lock")
    lock.take()
    (shelf.run_folder(second.id)).mkdir(parents=True)
    (shelf.run_folder(second.id) / "config.json").write_text('{"epochs": 3}')
    for lines, epoch in ((0, 1), (2, 2), (4, 3)):  # the first line is of before training
        (shelf.run_folder(second.id) / "history.jsonl").write_text(
            "".join(f'{{"epoch": {number}}}\n' for number in range(lines))
        )
        watch.console.print(watch)
        shown = out.getvalue()
        assert "1/2" in shown and "0/2" in shown and f"trial seed 0, epoch {epoch}" in shown
    assert "epoch 4" not in shown
    lock.release()
    shelf.write(second, {"error": "no"})
    shelf.write(plan.runs(shelf.outcome)[-1], done(test_map=61.5))
    with watch.showing():
        watch.update()
    assert (
        "1 failed" in out.getvalue()
        and "61.50" in out.getvalue()
        and "validation" not in out.getvalue()
    )
    shelf.write(plan.runs(shelf.outcome)[-2], done(test_map=60.5))
    watch.console.print(watch)
    assert "61.00 ± 0.71" in out.getvalue()


def test_without_a_test_split_the_table_fills_with_validation_figures(plan, tmp_path):
    shelf, out = Shelf(tmp_path), io.StringIO()
    watch = Watch(plan, shelf, console=Console(file=out, force_terminal=True, width=100))
    for run in plan.runs(shelf.outcome):
        shelf.write(run, done())
    shelf.write(plan.runs(shelf.outcome)[-1], done(val_map=61.5, test_map=None))
    watch.console.print(watch)
    assert (
        "61.50" in out.getvalue()
        and "validation" in out.getvalue()
        and "test mAP" not in out.getvalue()
    )


def test_elsewhere_each_new_run_is_a_line_and_quiet_is_quiet(plan, tmp_path):
    shelf, out, none = Shelf(tmp_path), io.StringIO(), io.StringIO()
    first, second = plan.runs(shelf.outcome)
    shelf.write(first, done())
    watch, quiet = (
        Watch(plan, shelf, console=Console(file=out)),
        Watch(plan, shelf, quiet=True, console=Console(file=none)),
    )
    with watch.showing(), quiet.showing():
        shelf.write(second, {"error": "no [luck]"})
        shelf.write(plan.runs(shelf.outcome)[-1], done(test_map=None))
        watch.update()
        watch.update()
        quiet.update()
    assert out.getvalue().splitlines() == [
        "1 runs are there already",
        "gr, trial, seed 0: failed: no [luck]",
        "gr, seed 2: validation 50.00",
    ]
    assert none.getvalue() == ""
