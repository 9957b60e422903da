"""Cores that a process may use."""

import os

import pytest

from spml import cores as module
from spml.cores import cores, decoders


@pytest.fixture(autouse=True)
def no_container(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "QUOTA", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


def test_threads_that_decode_are_as_many_as_cores_that_may_be_used_up_to_eight(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    assert (decoders(), decoders(1), decoders(9)) == (6, 5, 1)
    monkeypatch.delattr(os, "sched_getaffinity")  # as on a Mac
    for there, found in ((64, 8), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda there=there: there)
        assert decoders() == found


@pytest.mark.parametrize(
    "text,found",
    [
        ("max 100000", 6),
        ("200000 100000", 2),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("900000 100000", 6),
        ("", 6),
    ],
)
def test_a_container_has_the_cores_that_its_quota_gives_it(monkeypatch, no_container, text, found):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    no_container.write_text(text + "\n")
    assert cores() == found
