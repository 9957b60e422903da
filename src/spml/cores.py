"""How many processor cores this process may use, and threads that decode pictures."""

from __future__ import annotations

import os
from pathlib import Path

DECODERS = 8  # threads that decode at a time, at most: of 16 cores' 16 threads, each waits for Python, and 8 do more
QUOTA = Path(
    "/sys/fs/cgroup/cpu.max"
)  # of a container: microseconds of processor time in so many, or "max"


def cores() -> int:
    """Cores that are this process's own: a scheduler or a container may have given the machine's others away."""
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        time, period = map(int, QUOTA.read_text().split())
    except (OSError, ValueError):  # none, or no limit
        return allowed
    return max(1, min(allowed, round(time / period)))


def decoders(spared: int = 0) -> int:
    """How many threads decode pictures where nobody says.

    Args:
        spared: cores that are left to something else.
    """
    return max(1, min(DECODERS, cores() - spared))
