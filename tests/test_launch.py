"""Which process of a run this is, as torchrun, SLURM and Lightning say it."""

import pytest

from spml.launch import launched, started_first

SLURM = {"SLURM_NTASKS": "32", "SLURM_NNODES": "4", "SLURM_JOB_NAME": "spml", "SLURM_LOCALID": "0"}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "x",
    "WORLD_SIZE": "32",
    "LOCAL_WORLD_SIZE": "8",
    "LOCAL_RANK": "0",
}
NAMES = (*SLURM, *TORCHRUN, "RANK", "SLURM_PROCID", "NODE_RANK")
CASES = {  # variables; processes on each machine and machines; whether it is the first
    "alone": ({}, None, True),
    "torchrun, the first": ({**TORCHRUN, "RANK": "0"}, (8, 4), True),
    "torchrun, the first of another machine": ({**TORCHRUN, "RANK": "8"}, (8, 4), False),
    "SLURM, the first": ({**SLURM, "SLURM_PROCID": "0"}, (8, 4), True),
    "SLURM, the first of another machine": ({**SLURM, "SLURM_PROCID": "8"}, (8, 4), False),
    "in a shell that SLURM gave": (
        {**SLURM, "SLURM_JOB_NAME": "bash", "SLURM_PROCID": "0"},
        None,
        True,
    ),
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


@pytest.mark.parametrize("variables,processes,first", CASES.values(), ids=CASES)
def test_who_has_started_this_process(monkeypatch, variables, processes, first):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched() == processes and started_first() == first
