"""This process on its machine: the cores it may use, and its place among launched processes."""

import os
from pathlib import Path

DECODERS = 8  # decoding threads at most: more of them wait for the interpreter's lock and do less
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: CPU microseconds per period, or "max"


def cores() -> int:
    """Return the number of cores this process may use, as its scheduler or container allows."""
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    try:
        time, period = map(int, QUOTA.read_text().split())
    except (OSError, ValueError):  # no such file, or no limit
        return allowed
    return max(1, min(allowed, round(time / period)))


def decoders(spared: int = 0) -> int:
    """Return the default number of threads that decode pictures; `spared` cores do other work."""
    return max(1, min(DECODERS, cores() - spared))


def launched() -> tuple[int, int] | None:
    """Return processes per machine and number of machines, if torchrun or SLURM started them."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        return local, int(os.environ["WORLD_SIZE"]) // local
    interactive = os.environ.get("SLURM_JOB_NAME") in (None, "bash", "interactive")
    if "SLURM_NTASKS" in os.environ and not interactive:
        nodes = int(os.environ.get("SLURM_NNODES", "1"))
        return int(os.environ["SLURM_NTASKS"]) // nodes, nodes
    return None


def started_first() -> bool:
    """Whether this process is rank 0, before the process group exists."""
    ranks = (os.environ.get(name) for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"))
    own = next((rank for rank in ranks if rank is not None), "0")
    return own == "0" and os.environ.get("NODE_RANK", "0") == "0"


def out_of_memory(error: BaseException) -> bool:
    """Whether the error says that the GPU or the machine has too little memory.

    On a CPU torch raises a plain RuntimeError instead, which keeps torch's own text.
    """
    # by name, because importing torch takes seconds
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
