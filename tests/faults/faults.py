"""Faults that happen at a chosen call of a chosen function."""

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
        call: number of the call, from 1; 0 for every call.
        argument: passed to the function below.
        after: act after the call instead of before.
        rank: rank of the process in which it happens.
    """

    what: str
    where: str
    call: int = 1
    argument: str = ""
    after: bool = False
    rank: int = 0

    def _install(self) -> None:
        """Put a counting function in the place of the chosen one."""
        if os.environ.get("LOCAL_RANK", "0") != str(self.rank):
            return
        # Python ignores the kernel's signal, and only the main thread may change that.
        if self.what == "cut":
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
                act(self.argument, values)
            result = original(*values, **named)
            if mine and self.after:
                act(self.argument, values)
            return result

        setattr(owner, last, counted)


def install(faults: Iterable[Fault]) -> None:
    """Install faults; those at the same call happen in this order."""
    for fault in reversed(list(faults)):
        fault._install()


def kill(argument, values):
    os.kill(os.getpid(), signal.SIGKILL)


def terminate(argument, values):
    os.kill(os.getpid(), signal.SIGTERM)


def interrupt(argument, values):
    os.kill(os.getpid(), signal.SIGINT)


def group(argument, values):
    """Interrupt all processes of the run, as Ctrl-C in a terminal does."""
    os.killpg(0, signal.SIGINT)


def full(argument, values):
    """Fail as a write on a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def limit(argument, values):
    """Let no file grow beyond so many bytes: a write fails halfway, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(argument), resource.RLIM_INFINITY))


def cut(argument, values):
    """Let the kernel kill the process in the middle of a write beyond so many bytes."""
    limit(argument, values)


def memory(argument, values):
    import torch

    raise torch.OutOfMemoryError("out of memory. Tried to allocate 20.00 MiB\nand more lines")


def vanish(argument, values):
    Path(argument).unlink()


def read_only(argument, values):
    """Make a folder read-only, even for root."""

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    none = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None, use_errno=True).capset(ctypes.byref(Header(0x20080522, 0)), none) == 0
    for folder in (Path(argument), *(path for path in Path(argument).rglob("*") if path.is_dir())):
        folder.chmod(0o555)


def note_step(argument, values):
    """Write a line for each training step: its epoch and rows."""
    _, _, _, _, rows, epoch = values
    with Path(argument).open("a") as file:
        file.write(f"{epoch}: {rows.tolist()}\n")


def note(argument, values):
    """Write a line for each call."""
    with Path(argument).open("a") as file:
        file.write("call\n")


def process(argument, values):
    """Write the number of this process."""
    part = Path(argument).with_suffix(".part")
    part.write_text(str(os.getpid()))
    part.rename(argument)


def slow(argument, values):
    """Sleep for so many seconds."""
    time.sleep(float(argument))


def beside(argument, values):
    """Write files in a background thread, as on a GPU."""
    import spml.train.loop
    from spml.train.state import Writer

    spml.train.loop.Writer = lambda background: Writer(background=True)


def at_once(argument, values):
    """Commit the cache without waiting."""
    import spml.data.images.build

    spml.data.images.build.COMMIT_SECONDS = 0.0


ACTIONS = {name: act for name, act in globals().items() if callable(act)}
