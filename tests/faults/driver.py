"""Start `spml` with faults in new processes, forked from a server that has imported it."""

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.faults import Fault, install

ROOT = Path(__file__).parents[2]
LIMIT = 300  # seconds until a program counts as hanging
NOTES = ("spml: disk: ", "spml: memory ", "spml: time: ")  # printed before training
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    ["spml.cli.commands.train", "spml.train.fitting", "spml.report", "lightning.fabric", __name__]
)


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code, negative for a signal, and its output."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines of standard error, without the notes before training."""
        return [line for line in self.err.splitlines() if not line.startswith(NOTES)]

    def refused(self, *parts: str) -> None:
        """Assert that it ended with one line that contains all parts."""
        assert self.code == 2, self
        (error,) = self.errors
        assert error.startswith("spml: ") and all(part in error for part in parts), self.err

    def interrupted(self) -> None:
        """Assert that it was interrupted and printed that once."""
        assert self.code == 130, self
        assert self.err.count("interrupted") == 1 and "Traceback" not in self.err, self.err


def spml(*words: object, faults: tuple[Fault, ...] = (), cwd: Path = ROOT) -> Ended:
    """Run the command with these arguments in a fork."""
    pipes = [FORKED.Pipe(duplex=False) for _ in range(2)]
    arguments = list(map(str, words)), faults, [pipe[1] for pipe in pipes], cwd
    process = FORKED.Process(target=_forked, args=arguments)
    process.start()
    process.join(LIMIT)
    if hanging := process.is_alive():
        process.kill()
        process.join()
    outputs = []
    for reading, writing in pipes:
        writing.close()
        with open(reading.fileno(), closefd=False) as file:
            outputs.append(file.read())
    assert not hanging, f"hangs: {outputs}"
    return Ended(process.exitcode, *outputs)


def _forked(words: list[str], faults: tuple[Fault, ...], pipes: list, cwd: Path) -> None:
    for number, pipe in enumerate(pipes, start=1):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    import torch

    from spml.cli import entry

    torch.set_num_threads(1)
    os.chdir(cwd)
    install(faults)
    sys.argv = ["spml", *words]
    try:
        entry()
    finally:  # so that the coverage report can be written
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def program(
    *words: object, faults: tuple[Fault, ...] = (), launcher: tuple[str, ...] = ()
) -> subprocess.Popen:
    """Start the command as a new program in its own process group; it can start others."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MASTER", "LOCAL_RANK", "RANK"))
    }
    env |= {"OMP_NUM_THREADS": "1", "FAULTS": json.dumps([asdict(fault) for fault in faults])}
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "tests.faults.program", *map(str, words)],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen, limit: float = LIMIT) -> Ended:
    """Wait for a program; after the limit, kill it with all processes that it started."""
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # torchrun passes it on to its workers
        time.sleep(5)
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"hangs: {process.communicate(timeout=10)}") from None
    return Ended(process.returncode, out, err)
