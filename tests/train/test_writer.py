"""Files written beside training: in order, as they were, with their errors."""

import threading

import pytest
import torch

from spml.train import fit
from spml.train.loop import Writer as _LoopWriter
from spml.train.writer import Writer
from tests.conftest import contents, outcome


def test_things_are_done_in_order_in_another_thread():
    done, gate = [], threading.Event()
    with Writer(beside=True) as writer:
        writer.do(lambda: (gate.wait(10), done.append(("first", threading.current_thread()))))
        writer.do(lambda: done.append(("second", threading.current_thread())))
        assert not done
        gate.set()
        writer.wait()
        assert [name for name, _ in done] == ["first", "second"]
        assert threading.main_thread() not in {thread for _, thread in done}


def test_what_is_copied_stays_as_it_was():
    state = {"weights": torch.zeros(2), "history": [{"epoch": 1}], "rate": 0.1}
    copied = Writer(beside=True).copy(state)
    state["weights"] += 1
    state["history"].append({"epoch": 2})
    assert (
        copied["weights"].tolist() == [0, 0]
        and copied["history"] == [{"epoch": 1}]
        and copied["rate"] == 0.1
    )
    assert Writer(beside=False).copy(state) is state


def test_an_error_is_raised_where_the_writer_is_next_asked():
    def fail():
        raise OSError("no room")

    writer = Writer(beside=True)
    writer.do(fail)
    with pytest.raises(OSError, match="no room"):
        writer.wait()
    with pytest.raises(OSError, match="no room"), Writer(beside=True) as writer:
        writer.do(fail)
    with pytest.raises(OSError, match="no room"):
        Writer(beside=False).do(fail)


def test_what_an_earlier_call_has_raised_the_next_raises():
    writer = Writer(beside=True)
    writer.do(int, "no number")
    assert writer._waiting[0].exception(timeout=10)
    with pytest.raises(ValueError, match="no number"):
        writer.do(int, "1")


def test_what_was_begun_is_finished_whatever_ended_the_run():
    done, gate = [], threading.Event()
    with pytest.raises(KeyboardInterrupt), Writer(beside=True) as writer:
        writer.do(lambda: done.append(gate.wait(0.3)))
        raise KeyboardInterrupt
    assert done == [False]


def test_after_a_failure_nothing_more_is_written():
    def fail():
        gate.wait(10)
        raise OSError("no room")

    done, gate = [], threading.Event()
    writer = Writer(beside=True)
    writer.do(fail)
    writer.do(done.append, "the model that the checkpoint was to hold")
    gate.set()
    with pytest.raises(OSError, match="no room"):
        writer.wait()
    writer.wait()
    assert not done


def test_a_run_that_writes_beside_leaves_the_same_files(
    finished, scenes, quick, tmp_path, monkeypatch
):
    monkeypatch.setattr("spml.train.loop.Writer", lambda beside: _LoopWriter(beside=True))
    fit(scenes, quick, tmp_path / "beside", quiet=True)
    assert outcome(tmp_path / "beside") == outcome(finished)
    assert contents(tmp_path / "beside") == contents(finished)
