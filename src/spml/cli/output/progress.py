"""A progress bar for work that takes longer than a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

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


# receives the amount of work that is done, and its total if it is known; with several steps, the
# name of the step first
Advance = Callable[..., None]


@contextmanager
def step_bar(*columns: ProgressColumn) -> Iterator[Advance]:
    """Show a bar, beside it the amount and the time or other columns, after some seconds."""
    console = Console(stderr=True)
    beside = columns or (MofNCompleteColumn(), TimeElapsedColumn())
    shown = TextColumn("{task.description}"), BarColumn(), *beside
    progress = Progress(*shown, console=console, transient=True, disable=not console.is_terminal)
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
