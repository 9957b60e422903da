"""Which process of a run this is, as those who start processes say it. Loads nothing heavy."""

from __future__ import annotations

import os


def launched() -> tuple[int, int] | None:
    """Processes on each machine and number of machines, where torchrun or SLURM has started them."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        return here, int(os.environ["WORLD_SIZE"]) // here
    if "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in (
        None,
        "bash",
        "interactive",
    ):
        nodes = int(os.environ.get("SLURM_NNODES", "1"))
        return int(os.environ["SLURM_NTASKS"]) // nodes, nodes
    return None


def started_first() -> bool:
    """Whether this process is, or will be, the first, before the processes know of each other."""
    ranks = (os.environ.get(name) for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"))
    own = next((rank for rank in ranks if rank is not None), "0")
    return own == "0" and os.environ.get("NODE_RANK", "0") == "0"
