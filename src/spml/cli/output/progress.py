"""A progress bar for work that takes longer than a moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

PATIENCE = 2.0  # seconds without a bar


class Advance(Protocol):
    """Receives the amount of work that is done, and its total if it is known."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show the amount."""


class AdvanceStep(Protocol):
    """`Advance` for work of several steps."""

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        """Show the step and its amount."""


@contextmanager
def step_bar(*columns: ProgressColumn) -> Iterator[AdvanceStep]:
    """Show a bar on a terminal once the work has taken some seconds.

    Args:
        columns: what is beside the bar. Default: the amount and the time.
    """
    console = Console(stderr=True)
    shown = TextColumn("{task.description}"), BarColumn()
    beside = columns or (MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(
        *shown, *beside, console=console, transient=True, disable=not console.is_terminal
    )
    started = time.monotonic()
    task = progress.add_task("")

    def advance(what: str, done: int, total: int | None = None) -> None:
        if time.monotonic() - started > PATIENCE:
            progress.start()
        progress.update(task, description=what, completed=done, total=total)

    try:
        yield advance
    finally:
        progress.stop()


@contextmanager
def bar(what: str) -> Iterator[Advance]:
    """Show a bar for work of one step."""
    with step_bar() as advance:
        yield partial(advance, what)
