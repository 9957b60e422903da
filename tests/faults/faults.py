"""What can go wrong with a program, made to happen at a chosen call of a chosen function."""

from __future__ import annotations

import ctypes
import errno
import functools
import importlib
import os
import resource
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """Something that happens before (or after) a function is called for the n-th time in a process.

    Attributes:
        what: name of a function below.
        where: module:name of the function.
        call: which call of it, from 1; 0 for every one.
        given: to the function below.
        after: the call.
        rank: of the process that it happens in.
    """

    what: str
    where: str
    call: int = 1
    given: str = ""
    after: bool = False
    rank: int = 0

    def _install(self) -> None:
        """Put a counting function in the place of the chosen one."""
        if os.environ.get("LOCAL_RANK", "0") != str(self.rank):
            return
        if (
            self.what == "cut"
        ):  # Python ignores the kernel's signal, and the main thread alone may change that
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        module, _, name = self.where.partition(":")
        owner = importlib.import_module(module)
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        original, act, calls = getattr(owner, last), ACTIONS[self.what], 0

        @functools.wraps(original)
        def counted(*values, **named):
            nonlocal calls
            calls += 1
            mine = self.call in (0, calls)
            if mine and not self.after:
                act(self.given, values)
            result = original(*values, **named)
            if mine and self.after:
                act(self.given, values)
            return result

        setattr(owner, last, counted)


def install(faults: Iterable[Fault]) -> None:
    """Let them happen, in this order where they are of the same call."""
    for fault in reversed(list(faults)):
        fault._install()


def kill(given, values):
    os.kill(os.getpid(), signal.SIGKILL)


def terminate(given, values):
    os.kill(os.getpid(), signal.SIGTERM)


def interrupt(given, values):
    os.kill(os.getpid(), signal.SIGINT)


def group(given, values):
    """As Ctrl-C in a terminal: to all processes of the run."""
    os.killpg(0, signal.SIGINT)


def full(given, values):
    """As a write does on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def limit(given, values):
    """From now on no file may grow beyond so many bytes: a write fails in its midst, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(given), resource.RLIM_INFINITY))


def cut(given, values):
    """Killed by the kernel in the midst of the next write beyond so many bytes."""
    limit(given, values)


def memory(given, values):
    import torch

    raise torch.OutOfMemoryError("out of memory. Tried to allocate 20.00 MiB\nand more lines")


def vanish(given, values):
    Path(given).unlink()


def read_only(given, values):
    """A folder that cannot be written to, not even by root."""

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    none = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None, use_errno=True).capset(ctypes.byref(Header(0x20080522, 0)), none) == 0
    for folder in (Path(given), *(path for path in Path(given).rglob("*") if path.is_dir())):
        folder.chmod(0o555)


def note_step(given, values):
    """A line for each training step: its epoch and rows."""
    _, _, _, _, rows, epoch = values
    with Path(given).open("a") as file:
        file.write(f"{epoch}: {rows.tolist()}\n")


def note(given, values):
    """A line for each call."""
    with Path(given).open("a") as file:
        file.write("call\n")


def process(given, values):
    """The number of this process."""
    part = Path(given).with_suffix(".part")
    part.write_text(str(os.getpid()))
    part.rename(given)


def slow(given, values):
    """Takes so many seconds."""
    time.sleep(float(given))


def beside(given, values):
    """Files are written by a thread while training goes on, as they are on a GPU."""
    import spml.train.loop
    from spml.train.state import Writer

    spml.train.loop.Writer = lambda background: Writer(background=True)


def at_once(given, values):
    """No waiting between commits of the cache."""
    import spml.data.images.build

    spml.data.images.build.COMMIT_SECONDS = 0.0


ACTIONS = {name: act for name, act in globals().items() if callable(act)}
