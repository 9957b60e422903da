"""Cores available to a process, and its rank under torchrun, SLURM and Lightning."""

import os

import pytest

from spml import machine as module
from spml.machine import cores, decoders, launched, started_first

SLURM = {"SLURM_NTASKS": "32", "SLURM_NNODES": "4", "SLURM_JOB_NAME": "spml", "SLURM_LOCALID": "0"}
WORLD = {"WORLD_SIZE": "32", "LOCAL_WORLD_SIZE": "8"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "0", **WORLD}
SHELL = {**SLURM, "SLURM_JOB_NAME": "bash"}
NAMES = (*SLURM, *TORCHRUN, "RANK", "SLURM_PROCID", "NODE_RANK")
CASES = {  # variables; processes on each machine and machines; whether it is the first
    "alone": ({}, None, True),
    "torchrun, the first": ({**TORCHRUN, "RANK": "0"}, (8, 4), True),
    "torchrun, the first of another machine": ({**TORCHRUN, "RANK": "8"}, (8, 4), False),
    "SLURM, the first": ({**SLURM, "SLURM_PROCID": "0"}, (8, 4), True),
    "SLURM, the first of another machine": ({**SLURM, "SLURM_PROCID": "8"}, (8, 4), False),
    "in a shell that SLURM gave": ({**SHELL, "SLURM_PROCID": "0"}, None, True),
    "a job whose tasks SLURM does not count": ({"SLURM_JOB_NAME": "spml"}, None, True),
    "torchrun within SLURM": (
        {**SLURM, **TORCHRUN, "SLURM_PROCID": "1", "RANK": "0"},
        (8, 4),
        True,
    ),
    "--devices, the first": ({"NODE_RANK": "0"}, None, True),
    "--devices, another": ({"NODE_RANK": "0", "LOCAL_RANK": "1"}, None, False),
    "--nodes, another machine": ({"NODE_RANK": "1"}, None, False),
}


@pytest.fixture(autouse=True)
def no_container(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "QUOTA", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


def test_decoding_threads_match_the_usable_cores_up_to_eight(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    assert (decoders(), decoders(1), decoders(9)) == (6, 5, 1)
    monkeypatch.delattr(os, "sched_getaffinity")  # as on a Mac
    for count, threads in ((64, 8), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert decoders() == threads


@pytest.mark.parametrize(
    "text,number",
    [("max 100000", 6), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 6), ("", 6)],
)
def test_a_container_quota_limits_the_cores(monkeypatch, no_container, text, number):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    no_container.write_text(text + "\n")
    assert cores() == number


@pytest.mark.parametrize("variables,processes,first", CASES.values(), ids=CASES)
def test_launcher_variables_give_processes_and_rank(monkeypatch, variables, processes, first):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched() == processes and started_first() == first
